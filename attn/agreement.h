// How closely a method's output and gradients agree with its own float64 reference.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "attn/method.h"

namespace attn {

// What a call is made on. `output_gradient` [B,H,N,M] is used by forward_backward alone.
struct Inputs {
  at::Tensor q, k, v, output_gradient;
  Mask mask;
};

// Standard normal tensors and a mask for this problem, from the seed: the same whatever the number of threads.
Inputs make_inputs(const Problem& problem, Protocol protocol, uint64_t seed);

// What a call gives: the gradients only after forward_backward. A gradient that no path reaches is zero.
struct Results {
  at::Tensor output, q_gradient, k_gradient, v_gradient;
};

// One call of the protocol, as the harness times it. The inputs' requires_grad must be set as the protocol needs;
// make_inputs does so.
Results call(AttentionMethod& method, const Inputs& inputs, Protocol protocol);

// Batch entries, heads and query positions (int64 vectors) whose results are compared.
struct Selection {
  at::Tensor batch, heads, rows;

  static Selection everything(const Problem& problem);
  // About `count` query rows in at most four (batch, head) pairs, the first and last position among them.
  static Selection random(const Problem& problem, int64_t count, uint64_t seed);
  int64_t count() const { return batch.numel() * heads.numel() * rows.numel(); }
};

// `inputs` with an output gradient that is zero outside the selection, so that the reference needs only those rows.
Inputs restrict_gradient(const Inputs& inputs, const Selection& selection);

struct Agreement {
  double max_abs_error = 0;
  // Per tensor the largest difference over the reference's scale, the worst tensor's. The scale is the tensor's largest entry;
  // for a gradient at least a tenth of the largest of all three, as one of them can vanish by cancellation (one key: its
  // softmax does not depend on q) and then has no scale of its own.
  double max_rel_error = 0;
  std::string worst;   // that tensor: "output", "q gradient", …
  bool finite = true;  // no NaN or infinity anywhere in the results, selected or not

  bool within(double tolerance) const { return finite && max_rel_error <= tolerance; }
  // The worse of both.
  void include(const Agreement& other);
};

// `inputs` as the results came from; their output gradient must be zero outside the selection.
Agreement compare(const AttentionMethod& method, const Inputs& inputs, const Results& results, Protocol protocol,
                  const Selection& selection);

// Largest accepted max_rel_error for inputs of this type.
double error_tolerance(at::ScalarType dtype);

}  // namespace attn
