// Where the level of a series of values changes.
//
// Each place between two neighbours of a series is tested: the up to 40 values before it against the up to 40 values after it,
// not beyond a change that is already known, by one-sided exact Mann–Whitney tests of the hypotheses "larger by at most
// min_shift" and "smaller by at most min_shift". The p values are multiplied by the number of such tests in all series together
// (Bonferroni). The place with the smallest p value is a change if that is below alpha, and then the values on both of its sides
// are searched again (binary segmentation, Scott and Knott 1974).
//
// If no series changes, and the values of each are exchangeable, such as independent with one distribution, any change is found
// with a probability of at most alpha, over all series together and whatever the distribution. Values that drift, or follow each
// other in their noise, are not exchangeable, and then there is no such bound. Among 100 series of 1,000 values, seven values
// after a clear change are the fewest that find it: 40 and 7 values have C(47, 7) = 63 million orders, and there are 200,000
// tests.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "harness/statistics/statistics.h"

namespace attnbench {

// The most values on a side of a place that are compared.
inline constexpr size_t kChangeWindow = 40;

struct ChangeCriteria {
  double alpha = 0.01;      // the probability of any false change, over all series together
  double min_shift = 0.03;  // changes of up to 3 % are none
};

struct ChangePoint {
  size_t at = 0;   // the index of the first value after the change
  LogRatio ratio;  // log(after/before) of the values that were compared
  double p = 1;    // adjusted for all tests
};

// The changes of one series of positive values, ascending. `places` is the number of places in all series together: the sum of
// their sizes less one.
std::vector<ChangePoint> change_points(std::span<const double> values, size_t places, const ChangeCriteria& criteria = {});

// The probability that of all pairs of one of m and one of n values, which have one distribution without ties, the second is the
// larger one in at least u. Takes m and n from 1 to kChangeWindow.
double mann_whitney_tail(size_t m, size_t n, size_t u);

}  // namespace attnbench
