// Estimates how often the gate reaches each verdict, from suites that are resampled from recorded pairs.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/gate/gate.h"

namespace attnbench {

struct ErrorRates {
  int trials = 0;                                   // number of resampled suites
  double any_regression = 0, any_inconclusive = 0;  // share of the suites in which any case has this verdict
  // For each case, the share of the suites in which it has this verdict; an improvement counts as a pass.
  std::vector<double> regression, pass, inconclusive;
  double mean_pairs = 0;  // mean number of pairs per case
};
// The 95 % interval of a probability, of which `share` was the share in `trials` trials (Clopper and Pearson 1934). It covers the
// chance in drawing the trials, not the chance in the recordings.
Interval share_interval(double share, int trials);
// Throws UsageError if a case has fewer recorded pairs than the last look at one of so many cases needs.
void check_recordings(size_t recordings, size_t cases, const GatePlan& plan);
// The sign of a log ratio that is drawn. Of a pair of equal builds, either process could have been the base, so that each sign is
// as likely as the other.
enum class Signs { recorded, either };
// Runs the gate, full or quick, `trials` times. Each time it draws the pairs of each case from the recorded log ratios of the
// case, without replacement. Throws UsageError as check_recordings and the constructor of the gate do.
ErrorRates resample_gate(const std::vector<std::vector<double>>& log_ratios, const GatePlan& plan, int trials, uint64_t seed,
                         Signs signs = Signs::recorded);

// The verdicts of a full gate on a case, for true slowdowns from 1 to 15 %.
struct PowerCurve {
  std::vector<double> slowdown_percent, regression, pass, inconclusive;  // one share of the trials for each slowdown
};
// Estimates the curve by resampling the recorded log ratios of equal builds of one case. The case is judged as one of `cases` of
// which no other is slower, which is the hardest for Holm's procedure.
PowerCurve power_curve(const std::vector<double>& equal_log_ratios, size_t cases, const GatePlan& plan, int trials,
                       uint64_t seed);

// The results of a gate on a suite of which one case is slower.
struct SuiteCurve {
  std::vector<double> slowdown_percent;                // of that case
  std::vector<double> regression, pass, inconclusive;  // the share of the suites with this result
  std::vector<double> mean_pairs;                      // the mean number of pairs, over all cases of a suite together
};
// Estimates the curve by resampling the recorded log ratios of equal builds of all cases. The slower case is another one in each
// trial, in turn. Throws UsageError as resample_gate does.
SuiteCurve suite_curve(const std::vector<std::vector<double>>& equal_log_ratios, const GatePlan& plan,
                       const std::vector<double>& slowdown_percent, int trials, uint64_t seed);

}  // namespace attnbench
