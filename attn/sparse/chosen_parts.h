// Divides the pairs of queries with the blocks of keys that are chosen for them into parts that kernels can process tile by tile.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/sparse/implementation.h"

namespace attn {

// The parts of one head. A part has the keys of one block, and the queries that chose it.
struct ChosenParts {
  // The results of the parts of a group are joined one after the other. No query is in two groups.
  std::vector<VisibleParts> groups;
  std::vector<int64_t> queries;  // holds the queries to which the parts point
};

// The parts of each batch entry and each head of `chosen_blocks`, whose queries are divided into `groups` groups. A block that a
// query names more than once counts once, and −1 chooses none. Throws c10::ValueError for a number that is not that of a block.
std::vector<ChosenParts> chosen_parts(const SparseArguments& arguments, int64_t groups);

}  // namespace attn
