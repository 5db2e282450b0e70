// What a method reports about itself beside its results, in the column `diagnostics`.
#pragma once

#include "attn/method.h"
#include "harness/schema/record.h"
#include "harness/worker/call.h"
#include "harness/worker/checks/selection.h"

namespace attnbench {

// Sets the column to AttentionMethod::diagnostics() for the selected rows; for decoded results, for the last selected step.
// Throws std::invalid_argument for a diagnostic that the method does not declare.
void set_diagnostics(Record& record, const attn::AttentionMethod& method, const CallInputs& inputs, const Results& results,
                     const Selection& selection);

}  // namespace attnbench
