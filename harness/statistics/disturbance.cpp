// Selects samples by their shares, and takes all of them where too few are undisturbed.
#include "harness/statistics/disturbance.h"

#include <algorithm>
#include <utility>

namespace attnbench {

std::vector<double> undisturbed(const std::vector<double>& samples, const std::vector<double>& shares, double max_share) {
  if (shares.empty()) return samples;
  std::vector<double> kept;
  for (size_t i = 0; i < std::min(samples.size(), shares.size()); ++i)
    if (shares[i] <= max_share) kept.push_back(samples[i]);
  return kept;
}

Counted counted(const std::vector<double>& samples, const std::vector<double>& shares, double max_share) {
  auto kept = undisturbed(samples, shares, max_share);
  if (kept.size() < std::min(kMinUndisturbed, samples.size())) return {samples, true};
  return {std::move(kept), false};
}

Counted counted_ratios(const std::vector<double>& a, const std::vector<double>& shares_a, const std::vector<double>& b,
                       const std::vector<double>& shares_b, double max_share) {
  const auto share_at = [](const std::vector<double>& shares, size_t i) { return i < shares.size() ? shares[i] : 0; };
  std::vector<double> ratios, shares;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    ratios.push_back(a[i] / b[i]);
    shares.push_back(std::max(share_at(shares_a, i), share_at(shares_b, i)));
  }
  return counted(ratios, shares, max_share);
}

}  // namespace attnbench
