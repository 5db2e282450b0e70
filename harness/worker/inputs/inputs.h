// Draws the inputs of a call for a problem from a seed, or reads them from a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attn/input_spec.h"
#include "attn/problem.h"
#include "harness/schema/case.h"
#include "harness/worker/call.h"
#include "harness/worker/context.h"
#include "harness/worker/inputs/input_file.h"

namespace attnbench {

// How the inputs are drawn. With the first three, every entry has variance one, and v and the gradient of the output are standard
// normal. The others draw standard normal entries and change them so that results lose digits to cancellation, overflow or
// underflow if a method computes them carelessly.
enum class InputDistribution {
  // Every entry is an independent standard normal.
  normal,
  // Each row lies around one of 16 standard normal centres, with a standard deviation of 0.1, and is then scaled to variance one.
  // Each pair (batch, group of heads) has its own centres, which its queries and keys share. The number of rows around the c-th
  // centre is proportional to 1/c on average.
  clustered,
  // A block of 64 standard normal rows is repeated. Queries and keys have a block each.
  repeated,
  // Every column has a mean: 1 or -1 in q and k, which share it, between -100 and 100 in v, and between -1 and 1 in grad_output.
  offset,
  // Every head has a scale for each tensor, whose logarithm is uniform: 1e-3 to 1e3 for v and grad_output, 1e-3 to 30 for q and
  // k.
  scaled,
  // In every tensor every 16th column is 30 times as large as the others, and every 100th row is 30 times as large.
  outliers
};

// Parses the name of a distribution. Throws c10::ValueError for anything else.
InputDistribution parse_input_distribution(const std::string& name);

// Which tensors a call reads, and where they come from.
struct InputSource {
  // NOLINTNEXTLINE(google-explicit-constructor): a distribution alone is the usual source.
  InputSource(InputDistribution of_inputs = InputDistribution::normal) : distribution(of_inputs) {}

  // The source that the axes `inputs`, `concentration` and `decay_positions` of a case name. Throws c10::ValueError for an
  // unknown distribution and, as InputFile does, for a file that cannot be read.
  static InputSource of(const Case& c, std::vector<attn::InputSpec> tensors = attn::query_key_value(),
                        const WorkerContext& context = {});

  InputDistribution distribution;
  double concentration = 1;                         // the factor by which q is multiplied
  double decay_positions = Case().decay_positions;  // for drawn decays: after how many positions the weight of a position is 1/e
  std::shared_ptr<const InputFile> file = nullptr;  // holds the tensors; null if they are drawn
  std::vector<attn::InputSpec> tensors = attn::query_key_value();
};

// Returns tensors of the problem's shapes, dtype and device, and a mask. The same seed gives the same numbers for any number of
// threads. From a file come the first batch entries, heads and positions; the seed is then that of the mask and of grad_output.
// Throws c10::ValueError for an invalid problem, and for a file that does not hold such tensors or whose numbers the dtype cannot
// hold.
CallInputs make_inputs(const attn::Problem& problem, uint64_t seed, const InputSource& source = {});

// Returns the same inputs for a call that computes gradients: the differentiable tensors require gradients, and grad_output is
// drawn as well.
CallInputs make_inputs_with_gradient(const attn::Problem& problem, uint64_t seed, const InputSource& source = {});

}  // namespace attnbench
