// Draws the inputs of a call from a problem and a seed.
#pragma once

#include <cstdint>
#include <string>

#include "attn/problem.h"
#include "harness/worker/call.h"

namespace attnbench {

// How q and k are drawn. Every entry has variance one. v and the gradient of the output are standard normal in any case.
enum class InputDistribution {
  // Every entry is an independent standard normal.
  normal,
  // Rows lie around 16 standard normal centres, at a standard deviation of a tenth. Each pair (batch, head) has centres of its
  // own,
  // shared by its queries and keys, and the c-th centre takes a share of the rows that is proportional to 1/c.
  clustered,
  // A block of 64 standard normal rows is repeated, one block for the queries and one for the keys.
  repeated
};

// "normal", "clustered" or "repeated". Throws c10::ValueError for anything else.
InputDistribution parse_input_distribution(const std::string& name);

// Tensors and a mask for this problem. The same seed gives the same numbers, whatever the number of threads.
CallInputs make_inputs(const attn::Problem& problem, uint64_t seed, InputDistribution distribution = InputDistribution::normal);

// The same inputs for a call that computes gradients: they require gradients, and grad_output is drawn as well.
CallInputs make_inputs_with_gradient(const attn::Problem& problem, uint64_t seed,
                                     InputDistribution distribution = InputDistribution::normal);

}  // namespace attnbench
