// How often the gate errs on this machine: a build is measured against itself and against itself slowed down, and the gate's
// procedure is applied to suites that are resampled from these measurements.
#pragma once

#include <string>
#include <vector>

#include "harness/gate/gate.h"
#include "harness/gate/gate_suite.h"
#include "harness/text/text_table.h"

namespace attnbench {

struct CalibrationOptions {
  int recordings = 200;          // processes for each case and side
  int trials = 4000;             // suites that are resampled
  double slowdown_percent = 10;  // by which one side is slowed down
};

struct Calibration {
  CalibrationOptions options;
  GatePlan plan;
  Record environment;
  struct CaseRecordings {
    std::string name;
    std::vector<double> medians_ms, slowed_medians_ms;  // of each process of the build, and of the build slowed down
    std::vector<double> log_ratios, slowed_log_ratios;  // of each pair of equal builds, and of one with the slowed build
  };
  std::vector<CaseRecordings> cases;
  ErrorRates equal, slowed;  // what the gate says of equal builds, and of the slowed build
};

// Measures three processes of `build` in turns, the third slowed down, and resamples what they measured. Throws UsageError for a
// wrong suite or too few recordings, and WorkerError for a build that does not verify, cannot run a case, or breaks while it
// measures one.
Calibration calibrate(const WorkerProgram& build, const SuiteOptions& suite, const GatePlan& plan,
                      const CalibrationOptions& options);

Json json_of(const Calibration& calibration);
// A row for each case.
TextTable table_of(const Calibration& calibration);
// Two lines about all cases together.
std::string summary_of(const Calibration& calibration);

}  // namespace attnbench
