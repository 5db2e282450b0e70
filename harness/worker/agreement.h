// How closely the results of a call agree with the method's own float64 reference.
#pragma once

#include <string>

#include "attn/method.h"
#include "harness/schema/record.h"
#include "harness/worker/call.h"
#include "harness/worker/selection.h"

namespace attnbench {

struct Agreement {
  double max_abs_error = 0;
  // The maximum over the compared tensors of each tensor's relative error: its largest absolute difference from the reference,
  // divided by the reference's largest absolute entry. For a gradient the divisor is at least a tenth of the largest entry of all
  // gradients, because the entries of one gradient can vanish by cancellation (with one key, softmax does not depend on q).
  double max_rel_error = 0;
  // The tensor that has this error: "output", "gradient of q", …
  std::string worst;
  // Whether the results hold no NaN and no infinity anywhere, inside or outside the selection.
  bool finite = true;
  // Whether there was a reference to compare with. Without one, the errors are 0.
  bool verified = true;

  bool within(double tolerance) const { return finite && max_rel_error <= tolerance; }
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
