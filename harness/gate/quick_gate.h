// The procedure of a quick gate, without processes and files. It decides with the tests and the two levels of a full gate
// (gate.h), but looks at each case by itself, sooner, and measures the cases that seem slower first.
//
// A case is looked at when it has certain numbers of pairs. With m cases and the usual levels these are
//
// - 6 pairs, the fewest after which a case can pass, which takes that all of them are slower by less than the margin;
// - 10 pairs for 6 cases, the fewest after which a case can be a regression, which takes that all of them are slower by more than
//   min_shift. With n pairs no p value is below 2^(−n), so this is the first n with m · 2^(−n) < 4/5 · alpha;
// - 4 pairs more than the larger of both, the last look.
//
// This is a group-sequential test whose levels are spent in advance (Slud and Wei 1982; Lan and DeMets 1983 call it alpha
// spending): four fifths at the first look that can reject, and one fifth at the last look. Each look tests with its own share of
// the level, whatever the other look found, so that both levels hold by Bonferroni's inequality, over both looks and, for alpha,
// over all cases. Whether a look rejects a true hypothesis depends only on the first pairs of that case, and how many these are
// was fixed before. So the levels hold in whatever order the cases are measured, and wherever measuring stops: a look that is not
// reached rejects nothing. The gate may therefore follow the case that seems slower, stop at the first regression, and stop when
// its time is up.
//
// A case whose estimate is slower by more than min_shift passes at its last look only, because more pairs may show that it is a
// regression. A pass is called an improvement if the hypothesis "faster by at most min_shift" is rejected by then.
//
// Slud and Wei, Two-sample repeated significance tests based on the modified Wilcoxon statistic, JASA 77 (1982).
// Lan and DeMets, Discrete sequential boundaries for clinical trials, Biometrika 70 (1983).
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "harness/gate/gate.h"

namespace attnbench {

// The numbers of pairs at which a quick gate looks at a case.
struct QuickLooks {
  int pass = 0;        // the fewest after which a case can pass
  int regression = 0;  // the fewest after which a case can be a regression
  int last = 0;
};
// Throws UsageError if a level is not above 0. The looks of the plan are not used.
QuickLooks quick_looks(size_t cases, const GatePlan& plan);

// The numbers of pairs at which a case is looked at, ascending: those of the plan or, for a quick gate, those of quick_looks().
std::vector<int> looks_of(size_t cases, const GatePlan& plan);

class QuickGate {
 public:
  // `seed` determines the order of the cases. Throws UsageError as quick_looks does.
  QuickGate(size_t cases, const GatePlan& plan, uint64_t seed);

  // The case whose next pair is to be measured. It is a case with two or more pairs that are all slower by more than min_shift,
  // if there is one, and otherwise the next case of a round in random order. Nothing once a case is a regression or no case can
  // be measured further.
  std::optional<size_t> next();
  // Takes the log(candidate/base) of the next pair of a case, and judges the case if it is looked at after so many pairs.
  void add(size_t index, double log_ratio);
  // Allows the case to be a regression: the gate neither prefers it when it seems slower, nor stops when it is a regression.
  void let_fail(size_t index) { may_fail_[index] = true; }
  // Ends the measurements of the case, because it failed on a side.
  void give_up(size_t index) { given_up_[index] = true; }

  // A case that is not decided is inconclusive. The estimates are those from all pairs so far.
  std::vector<GateJudgement> judgements() const;

 private:
  bool has_failed() const;
  bool is_open(size_t index) const;
  bool seems_slower(size_t index) const;
  void judge(size_t index);

  GatePlan plan_;
  QuickLooks looks_;
  std::vector<std::vector<double>> log_ratios_;
  std::vector<GateJudgement> judgements_;
  std::vector<bool> may_fail_, given_up_;
  std::vector<size_t> round_;  // the cases that are still to be measured in this round, the next one last
  std::mt19937_64 random_;
};

}  // namespace attnbench
