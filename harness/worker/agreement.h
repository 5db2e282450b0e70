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
  // The largest difference from the reference over the reference's scale, of the tensor where this is largest. The scale is the
  // largest entry of the tensor; for a gradient it is at least a tenth of the largest entry of all gradients, as the entries of
  // one gradient can vanish by cancellation (with one key, softmax does not depend on q).
  double max_rel_error = 0;
  // That tensor: "output", "gradient of q", …
  std::string worst;
  // Whether the results hold no NaN and no infinity anywhere, inside or outside the selection.
  bool finite = true;

  bool within(double tolerance) const { return finite && max_rel_error <= tolerance; }
  // Takes the worse of both.
  void include(const Agreement& other);
  // Sets the columns of the agreement, and an outcome if it is not within the tolerance; returns whether it is.
  bool set_columns(Record& record, double tolerance) const;
};

// Compares the output and, where the inputs have a grad_output, the gradients. The grad_output must be zero outside the
// selection.
Agreement compare(const attn::AttentionMethod& method, const CallInputs& inputs, const Results& results,
                  const Selection& selection);

}  // namespace attnbench
