// Tells whether two sides differ, are equivalent, or whether the observations cannot tell, for each case.
//
// As in comparison.h, one observation is the median of one process, or the ratio that one process measured. A case is different
// if the test of judge(), adjusted over all cases by Holm's procedure, is significant and the estimated ratio is larger than a
// bound. It is equivalent if its ratio is shown to lie within the same bound by two one-sided tests at 5 % each (Schuirmann
// 1987), which is the case if the 90 % interval of the ratio lies within the bound. An estimate lies in its interval, so that no
// case is both.
//
// The tests of equivalence are not adjusted over the cases. The claim that all cases are equivalent is then wrong with a
// probability of at most 5 %, because a single case that is not equivalent refutes it (an intersection–union test, Berger 1982).
// But of many cases that are exactly at the bound, each is called equivalent with a probability of up to 5 %.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/statistics/comparison.h"
#include "harness/statistics/statistics.h"

namespace attnbench {

struct EquivalenceCriteria {
  double alpha = Criteria{}.alpha;       // the significance level of differences, over all cases together
  double within = Criteria{}.min_shift;  // the bound: ratios from 1 / (1 + within) to 1 + within are equivalent; 0.03 is 3 %
};

// How side b compares with side a, where larger values are slower.
enum class Finding { slower, faster, equivalent, cannot_tell };

// What an interval covers, with the words of the column time_ci_scope. One process has no interval.
enum class IntervalScope { none, range_of_processes, across_processes };
std::string scope_name(IntervalScope scope);  // empty for `none`
// What that column says of one process, whose quartiles are no interval.
inline constexpr auto kSpreadWithinProcess = "spread within process";
// What an interval across so many processes covers: with fewer than kMinValuesOfInterval it is the range of what they measured.
IntervalScope scope_of(size_t processes);

// log(b/a) with its intervals.
struct RatioEstimate {
  LogRatio ratio;  // the 95 % interval, the range, or infinite ends, as `scope` says
  IntervalScope scope = IntervalScope::none;
  Interval equivalence;  // the 90 % interval; its ends are infinite where there are too few processes
  size_t processes = 0;  // the number of processes, of the side that has fewer
};

// The estimate from processes of two sides that did not run in pairs (Hodges–Lehmann). No side may be empty.
RatioEstimate estimate_ratio(const TwoSides& sides);
// The same from the logarithms of the ratios that single processes measured (signed-rank). It may not be empty.
RatioEstimate estimate_paired_ratio(std::span<const double> log_ratios);

// Two values whose ratio b / a is the estimate, for tables that show both beside it: the medians of both sides, one multiplied
// and the other divided by the same factor. The ratio of the medians themselves can differ from the estimate.
struct ValuesOfEstimate {
  double a = 0, b = 0;
};
ValuesOfEstimate values_of_estimate(double median_a, double median_b, double log_ratio);

// The interval from which a finding follows: for `equivalent` the 90 % interval, otherwise the one of the estimate.
struct DecisiveInterval {
  Interval interval;
  int percent = 0;  // the level; 0 for a range of processes, or without an interval
};
DecisiveInterval decisive_interval(const RatioEstimate& estimate, Finding finding);

// The finding from an estimate whose difference from no difference is significant or not.
Finding finding_of(const RatioEstimate& estimate, bool is_significant, double within);
// Whether the 95 % interval excludes equal sides, for one case by itself. A range never does.
bool excludes_equality(const RatioEstimate& estimate);

struct CaseComparison {
  RatioEstimate estimate;
  double adjusted_p = 1;  // that both sides are equal, by Holm's procedure
  Finding finding = Finding::cannot_tell;
  bool can_differ = false;  // whether there are enough processes to find the case different, whatever they measured
};
// One comparison for each case, in order; no side of a case may be empty. Calls `before_each` before each case, so that it can
// end a long computation by throwing an exception.
std::vector<CaseComparison> compare_sides(const std::vector<TwoSides>& cases, const EquivalenceCriteria& criteria = {},
                                          const std::function<void()>& before_each = {});

// The finding over all cases: the first of slower, cannot_tell, faster and equivalent that any case has; cannot_tell for no
// cases.
Finding overall_finding(const std::vector<Finding>& findings);

}  // namespace attnbench
