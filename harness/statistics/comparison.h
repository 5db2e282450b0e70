// Tests whether side b is slower or faster than side a, for each case and over all cases.
//
// One observation is the median of one process. Calls within a process are not independent, so a test on single calls would find
// differences where there are none. Each case gets the Mann–Whitney test on its two sets of medians, and judge() adjusts the p
// values over all cases by Holm's procedure. Where a process of either side took samples in turns with one of the other side,
// test_pairs() has one-sided signed-rank tests on the ratios of such pairs, from which the gate decides (gate/gate.h).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/statistics/statistics.h"

namespace attnbench {

struct Criteria {
  double alpha = 0.01;      // the significance level over all cases together
  double min_shift = 0.03;  // a significant shift smaller than this is neither a regression nor an improvement; 0.03 is 3 %
  double margin = 0.10;     // a case passes only if the 95 % interval of its ratio excludes a slowdown as large as this
};

// How side b compares with side a.
enum class Verdict {
  regression,    // significantly slower, and by more than min_shift
  improvement,   // significantly faster, and by more than min_shift
  pass,          // neither of these, and a slowdown beyond the margin is excluded
  inconclusive,  // too noisy, or too few processes
};
std::string verdict_name(Verdict verdict);

struct Judgement {
  LogRatio ratio;                // log(b/a)
  double p = 1, adjusted_p = 1;  // before and after Holm's adjustment
  Verdict verdict = Verdict::inconclusive;
};

// The medians of the processes of one case, in milliseconds.
struct TwoSides {
  std::vector<double> a, b;
};

// One judgement for each case, in order. A case without medians on one side is inconclusive. Calls `before_each` before each
// case, so that it can end a long computation by throwing an exception.
std::vector<Judgement> judge(const std::vector<TwoSides>& cases, const Criteria& criteria = {},
                             const std::function<void()>& before_each = {});

// One-sided tests of one case on the log(b/a) of its pairs, by the exact signed-rank test. Each p value belongs to a hypothesis
// about the true log ratio; a small one speaks against the hypothesis. None is adjusted for the number of tests. The tests assume
// that the log ratios are independent and symmetric about the true one. They are if chance affects both sides alike and a change
// of the program multiplies the time.
struct PairTests {
  LogRatio ratio;       // the estimate, and its 95 % interval
  double slower_p = 1;  // "b is slower by at most min_shift": log(b/a) ≤ log(1 + min_shift)
  double faster_p = 1;  // "b is faster by at most min_shift": log(b/a) ≥ −log(1 + min_shift)
  double margin_p = 1;  // "b is slower by at least margin": log(b/a) ≥ log(1 + margin)
};
// All p values are 1 for a case without pairs.
PairTests test_pairs(std::span<const double> log_ratios, const Criteria& criteria = {});

// The fewest pairs with which one of `hypotheses` can be rejected at a level over all of them together: the smallest one-sided p
// value of n pairs is 2^(−n), which Holm's procedure multiplies by the number of hypotheses. Takes a level above 0.
int pairs_to_reject(size_t hypotheses, double level);

// The fewest processes a side with which judge() can find one case of so many different: with n processes a side, the smallest
// possible p value is 2 / C(2n, n), which Holm's procedure multiplies by the number of cases.
size_t processes_to_decide(size_t cases, double alpha = Criteria{}.alpha);
// Whether judge() can find one case of so many different if it has this many processes on its sides.
bool can_decide(size_t processes_a, size_t processes_b, size_t cases, double alpha = Criteria{}.alpha);

}  // namespace attnbench
