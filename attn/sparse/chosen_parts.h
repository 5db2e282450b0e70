// The pairs of queries with the blocks of keys that are chosen for each of them, as parts that kernels can run through.
#pragma once

#include <cstdint>
#include <vector>

#include "attn/sparse/implementation.h"

namespace attn {

// The parts of one head. A part has the queries for which a block of keys is chosen.
struct ChosenParts {
  // Parts of one group share queries and are joined one after the other; groups have no query in common.
  std::vector<VisibleParts> groups;
  std::vector<int64_t> queries;  // that the parts refer to
};

// The parts of each batch entry and head of `chosen_blocks`, with the queries of each divided into at most so many groups. A
// block that is chosen more than once counts once, and −1 chooses none. Throws c10::ValueError for a number that is not of a
// block.
std::vector<ChosenParts> chosen_parts(const SparseArguments& arguments, int64_t groups);

}  // namespace attn
