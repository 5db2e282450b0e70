// What is recorded about results that agree with the reference: how well the method approximates another attention, and the
// diagnostics that it reports about itself.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/method.h"
#include "harness/worker/call.h"
#include "harness/worker/selection.h"

namespace attnbench {

struct Quality {
  // ‖output − approximated‖ / ‖approximated‖ (Frobenius norms) over the selected rows, where `approximated` is the attention that
  // the method approximates; nothing if it approximates none.
  std::optional<double> approximation_error;
  // AttentionMethod::diagnostics(); for decoded results, those of the last selected step.
  std::vector<std::pair<std::string, double>> diagnostics;
};

// Throws std::invalid_argument for a diagnostic that the method does not declare.
Quality assess(const attn::AttentionMethod& method, const CallInputs& inputs, const Results& results, const Selection& selection);

}  // namespace attnbench
