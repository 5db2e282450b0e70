// Which of two sides is faster, for each case and over all of them.
//
// One observation is the median of one process. Calls within a process are not independent, so that a test on them would find
// differences where there are none. Each case gets the Mann–Whitney test on its two sets of medians or, where processes of both
// sides took their samples in turns, the signed-rank test on the ratios of such pairs. The p values are adjusted over all cases
// by Holm's procedure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/statistics/statistics.h"

namespace attnbench {

struct Criteria {
  double alpha = 0.01;      // the level of the whole family of cases
  double min_shift = 0.03;  // a smaller shift is not a regression, even a significant one
  double margin = 0.10;     // a case passes when the 95 % interval excludes a larger slowdown
};

// What b is compared with a.
enum class Verdict {
  regression,    // significantly slower, and by more than min_shift
  improvement,   // significantly faster, and by more than min_shift
  pass,          // neither of these, and a slowdown beyond the margin is excluded
  inconclusive,  // too noisy, or too few processes
};
std::string verdict_name(Verdict verdict);

struct Judgement {
  LogRatio ratio;
  double p = 1, adjusted_p = 1;
  Verdict verdict = Verdict::inconclusive;
};

// The medians of the processes of one case, in milliseconds.
struct TwoSides {
  std::vector<double> a, b;
};

// One judgement for each case, in order. A case without medians on one side is inconclusive.
std::vector<Judgement> judge(const std::vector<TwoSides>& cases, const Criteria& criteria = {});
// The same from the logarithms of b over a of the pairs of each case.
std::vector<Judgement> judge_pairs(const std::vector<std::vector<double>>& log_ratios, const Criteria& criteria = {});

// The verdict over all cases: regression if there is one, then inconclusive, improvement and pass. No cases are a pass.
Verdict over_all(const std::vector<Judgement>& judgements);

}  // namespace attnbench
