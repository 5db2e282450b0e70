// Tests whether side b is slower or faster than side a, for each case and over all cases.
//
// One observation is the median of one process. Calls within a process are not independent, so a test on single calls would find
// differences where there are none. Each case gets the Mann–Whitney test on its two sets of medians. Where a process of either
// side took samples in turns with one of the other side, the case gets the signed-rank test on the ratios of such pairs instead.
// The p values are adjusted over all cases by Holm's procedure.
#pragma once

#include <functional>
#include <optional>
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
// The same for paired observations: `log_ratios` holds log(b/a) of each pair of each case.
std::vector<Judgement> judge_pairs(const std::vector<std::vector<double>>& log_ratios, const Criteria& criteria = {});

// The fewest processes a side with which judge() can find one case of so many different: with n processes a side, the smallest
// possible p value is 2 / C(2n, n), which Holm's procedure multiplies by the number of cases.
size_t processes_to_decide(size_t cases, double alpha = Criteria{}.alpha);
// Whether judge() can find one case of so many different if it has this many processes on its sides.
bool can_decide(size_t processes_a, size_t processes_b, size_t cases, double alpha = Criteria{}.alpha);

// The verdict over all cases: the first of regression, inconclusive, improvement and pass that any case has; pass for no cases.
Verdict overall_verdict(const std::vector<Judgement>& judgements);

}  // namespace attnbench
