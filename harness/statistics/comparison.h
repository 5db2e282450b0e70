// Which of two sides is faster, case by case and over all of them.
//
// The sample is the median of one process: calls inside a process are not independent, and a test on them would see differences
// where there are none. Each case gets the Mann–Whitney test on its two sets of medians or, where a process of each side took its
// samples in turns with one of the other, the signed-rank test on the ratios of such pairs; adjusted over all cases (Holm).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/statistics/statistics.h"

namespace attnbench {

struct Criteria {
  double alpha = 0.01;      // of the whole family of cases
  double min_shift = 0.03;  // a smaller one is no regression, however sure
  double margin = 0.10;     // a case has passed when a larger slowdown can be excluded (95 %)
};

// How b stands to a.
enum class Verdict {
  regression,    // slower, for sure, and by more than min_shift
  improvement,   // faster, likewise
  pass,          // neither; a slowdown beyond the margin is excluded
  inconclusive,  // too noisy, or too few processes, to tell
};
std::string verdict_name(Verdict verdict);

struct Judgement {
  LogRatio ratio;
  double p = 1, adjusted_p = 1;
  Verdict verdict = Verdict::inconclusive;
};

// Process medians of one case, milliseconds.
struct TwoSides {
  std::vector<double> a, b;
};

// One for each case, in order. A side without any median is inconclusive.
std::vector<Judgement> judge(const std::vector<TwoSides>& cases, const Criteria& criteria = {});
// Likewise from the logarithms of b over a of each case's pairs.
std::vector<Judgement> judge_pairs(const std::vector<std::vector<double>>& log_ratios, const Criteria& criteria = {});

// The worst of all: regression before inconclusive before pass and improvement; pass for none.
Verdict over_all(const std::vector<Judgement>& judgements);

}  // namespace attnbench
