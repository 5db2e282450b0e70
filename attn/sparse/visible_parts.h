// Divides the pairs (query, key) that a mask leaves visible into parts that kernels can process tile by tile.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/pattern.h"
#include "attn/sparse/visible_part.h"

namespace attn {

// Parts that have no query in common.
using VisibleParts = std::vector<VisiblePart>;

// The stages of parts, in the order in which the results of the stages are joined. No pair is in two parts, and the parts of the
// first stage together have all queries. The queries are 0 … query_len − 1, at the positions from key_len − query_len on, and the
// keys are 0 … visible_keys − 1.
//
// A window or a block is one part. The pairs of a strided pattern beyond its window, and those of a dilated pattern, are divided
// by the remainder of their positions modulo the stride or the dilation: the rows and keys of one remainder form a band without
// gaps, which is a part.
std::vector<VisibleParts> visible_parts(const Pattern& pattern, bool causal, int64_t query_len, int64_t key_len,
                                        int64_t visible_keys);

// The number of visible pairs in all parts.
double count_pairs(const std::vector<VisibleParts>& parts);

}  // namespace attn
