// Selects which results of a call are compared with the float64 reference.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "attn/problem.h"
#include "harness/worker/call.h"

namespace attnbench {

// What decides how much of a call the reference can compute.
struct ReferenceNeed {
  double budget_bytes = std::numeric_limits<double>::infinity();  // the memory that the reference may use
  bool with_gradients = false;                                    // whether it also computes gradients
  bool all_rows = false;                                          // ForeignMethod::reference_computes_all_rows()
};

// Batch entries, groups of heads and query positions, each an int64 vector on the device of the results. The heads of a group
// share heads of q, k or v with each other and with none of another group; where no heads are shared, a group is a head.
struct Selection {
  at::Tensor batch, groups, rows;
  int64_t group_count = 0;   // the number of groups of the call
  int64_t output_heads = 0;  // the number of heads of the call's output

  static Selection everything(const attn::Problem& problem);
  // Random query rows, including the first and the last position, of all heads and batch entries: `count` rows in all, or 16 of
  // each pair (batch, group) if that is more. If the float64 reference of all pairs would take too long or need more than
  // `budget_bytes`, they are rows of some pairs drawn at random: of all groups, if at all possible.
  static Selection random(const attn::Problem& problem, int64_t count, uint64_t seed, const ReferenceNeed& need = {});

  // Number of selected rows over all selected batch entries and heads of the output.
  int64_t count() const { return batch.numel() * heads_of(output_heads).numel() * rows.numel(); }
  // The indices of the heads of the selected groups in a tensor with `heads` heads.
  at::Tensor heads_of(int64_t heads) const;
  // The selected batch entries and heads of x [B,heads,…], with all rows, or of the tensor with this declaration.
  at::Tensor select_from(const at::Tensor& x) const;
  at::Tensor select_from(const at::Tensor& x, const attn::InputSpec& spec) const;
};

// Returns the same inputs with a gradient of the output that is zero outside the selection. The gradients then depend on the
// selected rows alone, and the reference need not compute any others.
CallInputs restrict_gradient(const CallInputs& inputs, const Selection& selection);

// A part of a call: the arguments for the method's float64 functions, such as reference(), and the rows of the output to compare
// with their result.
struct Excerpt {
  attn::Inputs inputs;  // float64, only the selected batch entries and heads
  at::Tensor rows;      // int64 [R], positions in `inputs`
  at::Tensor output;    // [b,h,R,M], in the dtype of the call
};

// Returns one excerpt for a call on whole sequences. For decoded results, returns one for each selected step, whose inputs are
// the tokens up to and including its own, because row i of a longer sequence can differ if hashing, sorting or padding depend on
// the length.
std::vector<Excerpt> excerpts(const CallInputs& inputs, const Results& results, const Selection& selection);

}  // namespace attnbench
