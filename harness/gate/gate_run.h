// Runs the gate: checks both builds, measures their cases until each is decided, and reports.
#pragma once

#include <string>

#include "harness/gate/gate.h"
#include "harness/gate/gate_report.h"
#include "harness/gate/gate_suite.h"

namespace attnbench {

struct GateOptions {
  GatePlan plan;
  double memory_shift = 0.01;        // a smaller growth of the memory is no regression
  double instruction_shift = 0.005;  // a smaller growth of the number of instructions is no regression
  std::string waivers;               // path of a file for read_waivers; none if empty
};

// `suite` has two sides, the base and the candidate. If a case does not verify on one of them and is not waived, nothing is
// measured. Throws UsageError for a wrong suite or waivers file.
GateReport run_gate(GateSuite& suite, const GateOptions& options);

}  // namespace attnbench
