// How closely the results of a call agree with the method's own float64 reference.
#pragma once

#include <string>

#include "attn/method.h"
#include "harness/schema/record.h"
#include "harness/worker/call.h"
#include "harness/worker/checks/selection.h"

namespace attnbench {

struct Agreement {
  double max_abs_error = 0;
  // The maximum over the compared tensors of each tensor's relative error: its largest absolute difference from the reference,
  // divided by the reference's largest absolute entry. For a gradient the divisor is at least a tenth of the largest entry of all
  // gradients, because the entries of one gradient can vanish by cancellation (with one key, softmax does not depend on q).
  double max_rel_error = 0;
  // The tensor that has the error max_rel_error: "output", "gradient of q", …
  std::string worst;
  // Whether the results hold no NaN and no infinity anywhere, inside or outside the selection.
  bool finite = true;
  // Whether there was a reference to compare with. Without one, the errors are 0.
  bool verified = true;
  // The maximum over the rows (vectors of the last dimension) of all compared tensors of the row's relative error: its largest
  // absolute difference, divided by its own largest expected entry. The divisor is at least a hundredth of that of the tensor's
  // median row, and for a gradient at least a thousandth of the largest entry of all gradients. Rows with small entries, such as
  // the gradients of late queries in a causal call, do not count in max_rel_error.
  double max_row_error = 0;
  // The same two errors, minus the error that is unavoidable if the inputs are ill-conditioned: 16 times the error of the
  // reference itself, in the same tensor, when every input is changed by one rounding error of its dtype. They equal the two
  // errors if the inputs are not ill-conditioned.
  double excess_error = 0, excess_row_error = 0;

  bool within(double tolerance) const { return finite && excess_error <= tolerance; }
  // Combines this agreement with another one: takes the larger errors, and is finite only if both are.
  void include(const Agreement& other);
  // Sets the columns of the agreement, or `unverified` if there was no reference. If it is not within the tolerance, also records
  // the failure, and returns false.
  bool set_columns(Record& record, double tolerance) const;
};

// Compares the selected rows of the output with the method's reference, if it has one. If the inputs have a grad_output, also
// compares the gradients of the selected batch entries and heads; the grad_output must then be zero outside the selection.
Agreement compare(const attn::AttentionMethod& method, const CallInputs& inputs, const Results& results,
                  const Selection& selection);

}  // namespace attnbench
