// Runs the gate: checks both builds, measures the cases of the suite until each is decided, and reports the verdicts.
#pragma once

#include "harness/gate/gate_report.h"
#include "harness/gate/gate_suite.h"

namespace attnbench {

// `suite` has two sides, the base and the candidate. If a case is unusable on one of them and is not waived, nothing is measured.
// Throws UsageError for a wrong suite or waivers file.
GateReport run_gate(GateSuite& suite, const GateOptions& options);

}  // namespace attnbench
