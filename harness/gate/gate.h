// The gate's procedure, as pure functions: which cases of a suite are slower on side b, told after as few processes as will do.
//
// Processes come in pairs, one of each side, that took their samples in turns: a pair's sample is the logarithm of how much
// slower b was. The gate looks at the suite after 8, 12 and 20 pairs. At each look every case is judged over the whole suite
// (comparison.h). The first look can only let pass, as 8 pairs are never sure enough of a whole suite; those that follow have
// equal shares of the level, so that together they keep it (Bonferroni). A case whose verdict
// is not inconclusive has had its say and is measured no more; but one that would pass and yet is slower or faster by more than
// min_shift, at 95 %, goes on until that is sure or the last look taken.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/statistics/comparison.h"

namespace attnbench {

struct GatePlan {
  Criteria criteria;
  std::vector<int> looks = {8, 12, 20};  // pairs of processes, ascending
};

class Gate {
 public:
  // Throws UsageError for looks that do not ascend, or that begin below 8.
  Gate(size_t cases, GatePlan plan);

  // Cases that are measured further, and how many pairs each of them needs by the next look; none and 0 at the end.
  std::vector<size_t> open() const;
  int next_look() const;
  // The log ratios of all cases' pairs, so many of each; those of decided cases are not looked at again.
  void look(const std::vector<std::vector<double>>& log_ratios);

  const std::vector<Judgement>& judgements() const { return judgements_; }
  bool ended() const { return open().empty(); }

 private:
  GatePlan plan_;
  size_t looks_taken_ = 0;
  std::vector<std::vector<double>> decided_on_;
  std::vector<Judgement> judgements_;
};

// What the gate would say, by resampling recorded pairs.
struct ErrorRates {
  int trials = 0;
  double any_regression = 0, any_inconclusive = 0;  // shares of suites
  std::vector<double> regression, inconclusive;     // of each case
  double mean_pairs = 0;                            // a case
};
// Each trial draws the pairs of each case from its recorded log ratios, without replacement.
ErrorRates resample_gate(const std::vector<std::vector<double>>& log_ratios, const GatePlan& plan, int trials, uint64_t seed);

}  // namespace attnbench
