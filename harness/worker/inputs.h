// Draws the inputs of a call for a problem from a seed.
#pragma once

#include <cstdint>
#include <string>

#include "attn/problem.h"
#include "harness/worker/call.h"

namespace attnbench {

// How q and k are drawn. Every entry has variance one. v and the gradient of the output are always standard normal.
enum class InputDistribution {
  // Every entry is an independent standard normal.
  normal,
  // Each row lies around one of 16 standard normal centres, with a standard deviation of 0.1, and is then scaled to variance one.
  // Each pair (batch, head) has its own centres, which its queries and keys share. The number of rows around the c-th centre is
  // proportional to 1/c on average.
  clustered,
  // A block of 64 standard normal rows is repeated. Queries and keys have a block each.
  repeated
};

// Parses "normal", "clustered" or "repeated". Throws c10::ValueError for anything else.
InputDistribution parse_input_distribution(const std::string& name);

// Returns tensors of the problem's shapes, dtype and device, and a mask. The same seed gives the same numbers for any number of
// threads. Throws c10::ValueError for an invalid problem.
CallInputs make_inputs(const attn::Problem& problem, uint64_t seed, InputDistribution distribution = InputDistribution::normal);

// Returns the same inputs for a call that computes gradients: q, k and v require gradients, and grad_output is drawn as well.
CallInputs make_inputs_with_gradient(const attn::Problem& problem, uint64_t seed,
                                     InputDistribution distribution = InputDistribution::normal);

}  // namespace attnbench
