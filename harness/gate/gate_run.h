// Runs the gate: checks both builds, measures the cases of the suite until each is decided, and reports the verdicts.
#pragma once

#include <string>

#include "harness/gate/gate.h"
#include "harness/gate/gate_report.h"
#include "harness/gate/gate_suite.h"

namespace attnbench {

struct GateOptions {
  GatePlan plan;
  double memory_shift = 0.01;        // relative growth of memory up to which it is no regression
  double instruction_shift = 0.005;  // relative growth of the number of instructions up to which it is no regression
  std::string waivers;               // path of a file for read_waivers; empty if there is none
};

// `suite` has two sides, the base and the candidate. If a case is unusable on one of them and is not waived, nothing is measured.
// Throws UsageError for a wrong suite or waivers file.
GateReport run_gate(GateSuite& suite, const GateOptions& options);

}  // namespace attnbench
