// Searches series for changes, with tables of the exact distribution of the Mann–Whitney statistic.
#include "harness/statistics/change_points.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace attnbench {
namespace {

// tails[m][n][u] is mann_whitney_tail(m, n, u). The number of orders with the statistic u obeys
// N(m, n, u) = N(m − 1, n, u − n) + N(m, n − 1, u): the largest value is one of the second sample, or it is not.
using Tails = std::array<std::array<std::vector<double>, kChangeWindow + 1>, kChangeWindow + 1>;

Tails make_tails() {
  Tails counts;
  for (size_t m = 0; m <= kChangeWindow; ++m)
    for (size_t n = 0; n <= kChangeWindow; ++n) {
      auto& of_both = counts[m][n];
      of_both.assign(m * n + 1, 0);
      if (m == 0 || n == 0) {
        of_both[0] = 1;
        continue;
      }
      const auto &fewer_m = counts[m - 1][n], &fewer_n = counts[m][n - 1];
      for (size_t u = 0; u <= m * n; ++u) of_both[u] = (u >= n ? fewer_m[u - n] : 0) + (u < fewer_n.size() ? fewer_n[u] : 0);
    }
  for (auto& row : counts)
    for (auto& of_both : row) {
      double sum = 0;
      for (auto u = of_both.size(); u-- > 0;) of_both[u] = sum += of_both[u];
      for (auto& tail : of_both) tail /= sum;
    }
  return counts;
}

class ChangeSearch {
 public:
  ChangeSearch(std::span<const double> values, size_t places, const ChangeCriteria& criteria)
      : values_(values), tests_(2 * double(places)), criteria_(criteria) {}

  std::vector<ChangePoint> find() {
    search(0, values_.size());
    std::sort(found_.begin(), found_.end(), [](const ChangePoint& a, const ChangePoint& b) { return a.at < b.at; });
    return std::move(found_);
  }

 private:
  std::span<const double> before(size_t begin, size_t at) const {
    const auto m = std::min(kChangeWindow, at - begin);
    return values_.subspan(at - m, m);
  }
  std::span<const double> after(size_t at, size_t end) const { return values_.subspan(at, std::min(kChangeWindow, end - at)); }

  // The smaller p value of both tests at a place, not adjusted.
  double p_at(size_t begin, size_t at, size_t end) const {
    const auto a = before(begin, at), b = after(at, end);
    if (mann_whitney_tail(a.size(), b.size(), a.size() * b.size()) * tests_ >= criteria_.alpha) return 1;
    const double factor = 1 + criteria_.min_shift;
    size_t larger = 0, smaller = 0;
    for (const auto x : a)
      for (const auto y : b) {
        larger += y > x * factor ? 1 : 0;
        smaller += y * factor < x ? 1 : 0;
      }
    return mann_whitney_tail(a.size(), b.size(), std::max(larger, smaller));
  }

  // Segments are searched from a list, because a recursion would go as deep as there are changes.
  void search(size_t first, size_t last) {
    std::vector<std::pair<size_t, size_t>> segments = {{first, last}};
    while (!segments.empty()) {
      const auto [begin, end] = segments.back();
      segments.pop_back();
      ChangePoint best;
      for (size_t at = begin + 1; at < end; ++at)
        if (const auto p = p_at(begin, at, end); p < best.p) {
          best.p = p;
          best.at = at;
        }
      best.p *= tests_;
      if (best.at == 0 || best.p >= criteria_.alpha) continue;
      best.ratio = log_ratio(before(begin, best.at), after(best.at, end));
      found_.push_back(best);
      segments.emplace_back(begin, best.at);
      segments.emplace_back(best.at, end);
    }
  }

  std::span<const double> values_;
  double tests_;
  ChangeCriteria criteria_;
  std::vector<ChangePoint> found_;
};

}  // namespace

double mann_whitney_tail(size_t m, size_t n, size_t u) {
  static const Tails tails = make_tails();
  const auto& of_both = tails.at(m).at(n);
  return u < of_both.size() ? of_both[u] : 0;
}

std::vector<ChangePoint> change_points(std::span<const double> values, size_t places, const ChangeCriteria& criteria) {
  if (values.size() < 2) return {};
  return ChangeSearch(values, places, criteria).find();
}

}  // namespace attnbench
