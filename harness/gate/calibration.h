// Measures how often the gate is wrong on this machine. A build is compared with itself, and with itself with an injected
// slowdown, and the gate's procedure is applied to suites that are resampled from these recordings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/gate/gate.h"
#include "harness/gate/gate_suite.h"
#include "harness/gate/resampling.h"
#include "harness/text/text_table.h"

namespace attnbench {

// What was measured: the processes of three sides, which are a build, the same build, and the same build slowed down.
struct Recordings {
  double slowdown_percent = 10;  // the injected slowdown of the third side
  Json environment;              // revision, cpu_model and processors
  struct OfCase {
    std::string name;
    std::vector<double> medians_ms, slowed_medians_ms;  // of each process of the build, and of the slowed build
    std::vector<double> log_ratios, slowed_log_ratios;  // of each pair of equal builds, and of the build and the slowed build
  };
  std::vector<OfCase> cases;
};

// Runs three processes of `build` in turns, `count` times for each case. Throws UsageError for a wrong suite, and WorkerError for
// a build that does not verify, cannot run a case, or breaks while it measures one. Throws as check_recordings does, before
// anything is measured, if so many recordings are too few for a gate of this plan.
Recordings record_suite(const WorkerProgram& build, const SuiteOptions& suite, const GatePlan& plan, int count,
                        double slowdown_percent);
// The same of a suite with three sides: a build, the same build, and that build slowed down by `slowdown_percent`.
Recordings record(GateSuite& suite, const GatePlan& plan, int count, double slowdown_percent);
// Reads the recordings from a file calibration.json that an earlier calibration has written. Throws UsageError, which names the
// file and the value that is wrong, if it is not such a file.
Recordings read_recordings(const std::string& path);

struct Calibration {
  GatePlan plan;
  int trials = 0;     // number of suites that were resampled
  uint64_t seed = 0;  // the seed of the resampling; the same recordings, plan, trials and seed give the same result
  Recordings recordings;
  ErrorRates equal, slowed;  // the gate's verdicts on equal builds, and on the slowed build as it was measured
  // For a full gate: the verdicts on each case for true slowdowns, from the recordings of equal builds.
  std::vector<PowerCurve> curves;
  // For a quick gate, which ends at the first regression: its results for true slowdowns of one case, from the same recordings.
  SuiteCurve suite_curve;
};
// Resamples the recordings. Throws UsageError as resample_gate does.
Calibration calibrate(Recordings recordings, const GatePlan& plan, int trials, uint64_t seed);

Json json_of(const Calibration& calibration);
// A table with a row for each case. It shows the interquartile range (IQR) of the medians of processes and of the ratios of
// pairs, how often the gate is wrong about equal builds, the slowdown that was measured on the slowed build and, of a full gate,
// how often it found that.
TextTable table_of(const Calibration& calibration);
// A table with a row for each true slowdown. Of a full gate, it has the mean shares of the verdicts over all cases, and the
// lowest and highest share of regressions of any case; of a quick gate, the shares of the results of suites with one slower case,
// and the mean number of pairs of a suite.
TextTable power_table_of(const Calibration& calibration);
// Lines of text about all cases together.
std::string summary_of(const Calibration& calibration);

}  // namespace attnbench
