// The gate's procedure, without processes and files: it decides which cases of a suite are slower on the candidate than on the
// base, from as few processes as possible.
//
// Processes are started in pairs, one of each side, which take their samples in turns. The observation of a pair is the logarithm
// of the candidate's time divided by the base's time. The gate looks at the suite after 8, 12 and 20 pairs, and tests each case
// with one-sided signed-rank tests (test_pairs in statistics/comparison.h). At a look, a case that has no verdict yet becomes
//
// - a regression if the hypothesis "slower by at most min_shift" is rejected. The p values of a look are adjusted over all cases
//   of the suite by Holm's procedure, in which a case that was found slower at an earlier look counts as rejected, and a case
//   that passed counts as one with p = 1. The level alpha is divided equally among the last looks: as many of them as can each
//   reject a single case with their share, which n pairs can if cases · 2^(−n) < share. Any case that is not slower by more than
//   min_shift is therefore called a regression with a probability of at most alpha over all cases and looks together.
// - a pass if the hypothesis "slower by margin or more" is rejected. The level pass_alpha is divided equally among all looks
//   (Bonferroni). A case that is slower by margin or more therefore passes at any of the looks with a probability of at most
//   pass_alpha. The level holds for each case, and also for the suite: a suite passes only if all its cases do.
//
// Two further rules only delay or rename a pass, so the levels hold with them. A case whose estimated shift is larger than
// min_shift, in either direction, passes only at the last look, because more pairs may show that the shift is significant. A pass
// is called an improvement if the hypothesis "faster by at most min_shift" is rejected, with the same levels as for a regression.
//
// The signed-rank test assumes that the log ratios of a case are independent and symmetric about the true one. For two builds
// that take equally long this holds by itself, whatever the distribution of the times, because the two processes of a pair are
// interchangeable. A slowdown that multiplies all times only moves that distribution.
#pragma once

#include <vector>

#include "harness/statistics/comparison.h"

namespace attnbench {

struct GatePlan {
  Criteria criteria;
  double pass_alpha = 0.025;             // max probability that a case that is slower by the margin or more passes
  std::vector<int> looks = {8, 12, 20};  // numbers of pairs after which a full gate looks, ascending
  bool is_quick = false;                 // whether the procedure of quick_gate.h decides instead, which has looks of its own
};
// Throws UsageError if alpha or pass_alpha is not above 0.
void check_levels(const GatePlan& plan);

struct GateJudgement {
  LogRatio ratio;  // log(candidate/base)
  // The p values of PairTests, adjusted for the looks and, except margin_p, for the cases. slower_p and faster_p are compared
  // with alpha, and margin_p with pass_alpha. They are 1 at a look that has no share of the level.
  double slower_p = 1, faster_p = 1, margin_p = 1;
  Verdict verdict = Verdict::inconclusive;
};

class Gate {
 public:
  // Throws UsageError if a level is not above 0, if the looks do not ascend, if no case can pass at the first look, or if the
  // last look cannot find one of so many cases slower.
  Gate(size_t cases, GatePlan plan);

  // The cases that are still to be measured; none once the gate has ended.
  std::vector<size_t> undecided() const;
  // The number of pairs that each undecided case needs for the next look; 0 after the last look.
  int next_look() const;
  // Takes the next look. `log_ratios` has the observations of each case, all of them since the first; those of decided cases are
  // ignored. A case with fewer observations than the look needs stays undecided.
  void look(const std::vector<std::vector<double>>& log_ratios);

  const std::vector<GateJudgement>& judgements() const { return judgements_; }
  bool has_ended() const { return undecided().empty(); }

 private:
  GateJudgement judgement_of(const PairTests& tests, double slower_p, double faster_p) const;

  GatePlan plan_;
  size_t first_rejecting_ = 0;  // the first look that has a share of alpha
  size_t looks_taken_ = 0;
  std::vector<GateJudgement> judgements_;
};

}  // namespace attnbench
