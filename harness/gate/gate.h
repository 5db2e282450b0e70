// The gate's procedure as pure functions: it decides which cases of a suite are slower on the candidate than on the base, from as
// few processes as possible.
//
// Processes are started in pairs, one of each side, which take their samples in turns. The observation of a pair is the logarithm
// of the ratio of the candidate's time to the base's. The gate looks at the suite after 8, 12 and 20 pairs, and at each look
// judges every case over the whole suite (statistics/comparison.h). 8 pairs are never enough to find a case of a whole suite
// significantly slower, so the first look can only let cases pass; the later looks have equal shares of the significance level,
// so that together they keep it (Bonferroni). A case is measured until its verdict is no longer inconclusive. A case that would
// pass although it is slower or faster by more than min_shift, at 95 %, is measured until the next look that can tell, or until
// the last look.
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
  // Throws UsageError for looks that do not ascend, or that begin below 8.
  Gate(size_t cases, GatePlan plan);

  // The cases that are still to be measured; none once the gate has ended.
  std::vector<size_t> undecided() const;
  // How many pairs each undecided case needs for the next look; 0 after the last look.
  int next_look() const;
  // Takes the next look. `log_ratios` holds the observations of each case; those of decided cases are ignored.
  void look(const std::vector<std::vector<double>>& log_ratios);

  const std::vector<Judgement>& judgements() const { return judgements_; }
  bool has_ended() const { return undecided().empty(); }

 private:
  GatePlan plan_;
  size_t looks_taken_ = 0;
  std::vector<std::vector<double>> decided_on_;  // the observations of each case at the last look at it
  std::vector<Judgement> judgements_;
};

// How often the gate reaches which verdict, estimated by resampling recorded pairs.
struct ErrorRates {
  int trials = 0;
  double any_regression = 0, any_inconclusive = 0;  // shares of the resampled suites
  std::vector<double> regression, inconclusive;     // the same for each case
  double mean_pairs = 0;                            // per case
};
// Runs the gate `trials` times; each time it draws the pairs of each case from its recorded log ratios, without replacement.
// Throws UsageError when a case has fewer recorded pairs than the last look needs.
ErrorRates resample_gate(const std::vector<std::vector<double>>& log_ratios, const GatePlan& plan, int trials, uint64_t seed);

}  // namespace attnbench
