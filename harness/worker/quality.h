// What is recorded beside the agreement, of results that agree: how well a method approximates another attention, and what it
// says of itself.
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
  // ‖output − approximated‖ / ‖approximated‖ (Frobenius norms) over the selected rows; nothing for a method that approximates no
  // other attention.
  std::optional<double> approximation_error;
  // What the method reports about itself; of decoded results that of the last selected step.
  std::vector<std::pair<std::string, double>> diagnostics;
};

// Throws std::invalid_argument for a diagnostic that the method has not declared.
Quality assess(const attn::AttentionMethod& method, const CallInputs& inputs, const Results& results, const Selection& selection);

}  // namespace attnbench
