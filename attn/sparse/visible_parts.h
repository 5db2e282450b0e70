// Divides the pairs (query, key) that a mask leaves visible into parts that kernels can run through tile by tile.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/pattern.h"
#include "attn/sparse/visible_part.h"

namespace attn {

// Parts that have no query in common.
using VisibleParts = std::vector<VisiblePart>;

// The parts, in the order in which they are joined: no pair is in two of them, and the first parts have all queries. The pairs
// are those of the queries 0 … query_len − 1 at the positions from key_len − query_len on with the keys 0 … visible_keys − 1.
//
// A window or a block is one part. The pairs of a strided pattern beyond its window, and those of a dilated one, are a part for
// each remainder that positions leave: rows and keys of the same remainder, next to each other, are a band without gaps.
std::vector<VisibleParts> visible_parts(const Pattern& pattern, bool causal, int64_t query_len, int64_t key_len,
                                        int64_t visible_keys);

// The number of pairs in the parts.
double count_pairs(const std::vector<VisibleParts>& parts);

}  // namespace attn
