// The gate's procedure, without processes and files: it decides which cases of a suite are slower on the candidate than on the
// base, from as few processes as possible.
//
// Processes are started in pairs, one of each side, which take their samples in turns. The observation of a pair is the logarithm
// of the candidate's time divided by the base's time. The gate looks at the suite after 8, 12 and 20 pairs. At each look it
// judges the cases, with p values that are adjusted over the whole suite (statistics/comparison.h). 8 pairs are too few to find
// one case of several significantly slower, so the first look can only let cases pass. The later looks get equal shares of the
// significance level, so that the level holds for all looks together (Bonferroni). A case is measured until its verdict is no
// longer inconclusive. A case whose whole 95 % interval lies beyond min_shift does not pass before the last look, because more
// pairs may show that the shift is significant.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/statistics/comparison.h"

namespace attnbench {

struct GatePlan {
  Criteria criteria;
  std::vector<int> looks = {8, 12, 20};  // numbers of pairs after which the gate looks, ascending
};

class Gate {
 public:
  // Throws UsageError if the looks do not ascend or the first is below 8.
  Gate(size_t cases, GatePlan plan);

  // The cases that are still to be measured; none once the gate has ended.
  std::vector<size_t> undecided() const;
  // The number of pairs that each undecided case needs for the next look; 0 after the last look.
  int next_look() const;
  // Takes the next look. `log_ratios` has the observations of each case, all of them since the first; those of decided cases are
  // ignored.
  void look(const std::vector<std::vector<double>>& log_ratios);

  const std::vector<Judgement>& judgements() const { return judgements_; }
  bool has_ended() const { return undecided().empty(); }

 private:
  GatePlan plan_;
  size_t looks_taken_ = 0;
  std::vector<std::vector<double>> decided_on_;  // the observations of each case up to the look that decided it, or the last
  std::vector<Judgement> judgements_;
};

// How often the gate reaches each verdict, estimated from suites that are resampled from recorded pairs.
struct ErrorRates {
  int trials = 0;                                   // number of resampled suites
  double any_regression = 0, any_inconclusive = 0;  // share of the suites in which any case has this verdict
  std::vector<double> regression, inconclusive;     // for each case, the share of the suites in which it has this verdict
  double mean_pairs = 0;                            // mean number of pairs per case
};
// Throws UsageError if a case has fewer recorded pairs than the last look needs.
void check_recordings(size_t recordings, const GatePlan& plan);
// Runs the gate `trials` times. Each time it draws the pairs of each case from the recorded log ratios of the case, without
// replacement. Throws UsageError as check_recordings does.
ErrorRates resample_gate(const std::vector<std::vector<double>>& log_ratios, const GatePlan& plan, int trials, uint64_t seed);

}  // namespace attnbench
