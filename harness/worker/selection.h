// Which of a call's results are compared with the float64 reference.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "attn/problem.h"
#include "harness/worker/call.h"

namespace attnbench {

// Batch entries, heads and query positions, each an int64 vector on the device of the results.
struct Selection {
  at::Tensor batch, heads, rows;

  static Selection everything(const attn::Problem& problem);
  // About `count` query rows in at most four pairs (batch, head), the first and the last position among them.
  static Selection random(const attn::Problem& problem, int64_t count, uint64_t seed);

  // Number of selected rows over all selected batch entries and heads.
  int64_t count() const { return batch.numel() * heads.numel() * rows.numel(); }
  // The selected batch entries and heads of x [B,H,…].
  at::Tensor of(const at::Tensor& x) const;
};

// The same inputs with a gradient of the output that is zero outside the selection, so that the gradients depend on the selected
// rows alone and the reference needs no others.
CallInputs restrict_gradient(const CallInputs& inputs, const Selection& selection);

// A part of a call: the arguments of the method's float64 functions, and the rows of the output that they should give.
struct Excerpt {
  attn::Inputs inputs;  // float64, of the selected batch entries and heads
  at::Tensor rows;      // int64 [R]
  at::Tensor output;    // [b,h,R,M], in the dtype of the call
};

// One excerpt of a call on whole sequences. Of decoded results one for each selected step, whose inputs are the tokens up to its
// own: where hashing, sorting or padding depends on the length, row i of a longer sequence would be another row.
std::vector<Excerpt> excerpts(const CallInputs& inputs, const Results& results, const Selection& selection);

}  // namespace attnbench
