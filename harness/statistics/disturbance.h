// Leaves disturbed samples out of estimates. A sample is disturbed if the machine was slower beside it than at its best by more
// than a given share; that share is measured apart from the sample, so that leaving samples out does not favour fast ones.
#pragma once

#include <cstddef>
#include <vector>

namespace attnbench {

// With fewer undisturbed samples than this, all samples count.
inline constexpr size_t kMinUndisturbed = 3;

// The samples whose share is at most `max_share`. All samples if there are no shares.
std::vector<double> undisturbed(const std::vector<double>& samples, const std::vector<double>& shares, double max_share);

// The samples that an estimate uses: the undisturbed ones, or all of them if too few are undisturbed.
struct Counted {
  std::vector<double> values;
  bool all = false;  // whether too few were undisturbed
};
Counted counted(const std::vector<double>& samples, const std::vector<double>& shares, double max_share);

// The ratios a/b of samples that neighbour each other, in the same way: a pair is undisturbed if both of its samples are. The
// lists may differ in length; what has no neighbour is left out.
Counted counted_ratios(const std::vector<double>& a, const std::vector<double>& shares_a, const std::vector<double>& b,
                       const std::vector<double>& shares_b, double max_share);

}  // namespace attnbench
