// Measures how often the gate is wrong on this machine. A build is compared with itself and with itself slowed down, and the
// gate's procedure is applied to suites that are resampled from these recordings.
#pragma once

#include <string>
#include <vector>

#include "harness/gate/gate.h"
#include "harness/gate/gate_suite.h"
#include "harness/text/text_table.h"

namespace attnbench {

struct CalibrationOptions {
  int recordings = 200;          // number of processes for each case and side
  int trials = 4000;             // number of suites that are resampled
  double slowdown_percent = 10;  // slowdown of the third side
};

struct Calibration {
  CalibrationOptions options;
  GatePlan plan;
  Record environment;
  struct CaseRecordings {
    std::string name;
    std::vector<double> medians_ms, slowed_medians_ms;  // of each process of the build, and of the slowed build
    std::vector<double> log_ratios, slowed_log_ratios;  // of each pair of equal builds, and of the build and the slowed build
  };
  std::vector<CaseRecordings> cases;
  ErrorRates equal, slowed;  // the gate's verdicts on equal builds, and on the slowed build
};

// Runs three processes of `build` in turns, of which the third is slowed down, and resamples what they measured. Throws
// UsageError for a wrong suite or too few recordings, and WorkerError for a build that does not verify, cannot run a case, or
// breaks while it measures one.
Calibration calibrate(const WorkerProgram& build, const SuiteOptions& suite, const GatePlan& plan,
                      const CalibrationOptions& options);

Json json_of(const Calibration& calibration);
// A table with a row for each case. It shows the interquartile range (IQR) of the medians of processes and of the ratios of
// pairs.
TextTable table_of(const Calibration& calibration);
// Two lines of text about all cases together.
std::string summary_of(const Calibration& calibration);

}  // namespace attnbench
