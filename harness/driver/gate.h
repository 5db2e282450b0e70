// The gate's procedure, as pure functions: which cases of a suite are slower on side b, told after as few processes as will do.
//
// It looks at the suite after 8, 16 and 24 processes a side. At each look every case is judged over the whole suite
// (comparison.h), at a third of the level, so that three looks together keep the level of one (Bonferroni). A case whose verdict
// is not inconclusive has had its say and is measured no more.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "harness/driver/comparison.h"

namespace attnbench {

struct GatePlan {
  Criteria criteria;
  std::vector<int> looks = {8, 16, 24};  // processes a side, ascending
};

class Gate {
 public:
  // Throws UsageError for looks that do not ascend, or that begin below 8.
  Gate(size_t cases, GatePlan plan);

  // Cases that are measured further, and how many processes a side each of them needs by the next look; none and 0 at the end.
  std::vector<size_t> open() const;
  int next_look() const;
  // The medians of all cases with so many processes; those of decided ones are not looked at again.
  void look(const std::vector<TwoSides>& medians);

  const std::vector<Judgement>& judgements() const { return judgements_; }
  bool ended() const { return open().empty(); }

 private:
  GatePlan plan_;
  size_t looks_taken_ = 0;
  std::vector<TwoSides> decided_on_;
  std::vector<Judgement> judgements_;
};

// What the gate would say, by resampling recorded process medians.
struct ErrorRates {
  int trials = 0;
  double any_regression = 0, any_inconclusive = 0;  // shares of suites
  std::vector<double> regression, inconclusive;     // of each case
  double mean_processes = 0;                        // a side and case
};
// Each trial draws for each case the processes of side a from `a`, those of side b from `b`, without replacement; where both are
// the same recordings (an A/A calibration) the sides share none. `random` gives numbers as std::mt19937_64 does.
ErrorRates resample_gate(const std::vector<std::vector<double>>& a, const std::vector<std::vector<double>>& b, bool same,
                         const GatePlan& plan, int trials, uint64_t seed);

}  // namespace attnbench
