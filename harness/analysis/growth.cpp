// Fits exponents to the longest lengths of a series, and compares them with those of the declared orders.
#include "harness/analysis/growth.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/process/interrupts.h"
#include "harness/text/json_numbers.h"

namespace attnbench {
namespace {

constexpr double kFittedRange = 8;
constexpr size_t kMinFittedLengths = 3;

// The slope of a declared order at this length on logarithmic axes, or nothing for an order that is not listed here.
std::optional<double> exponent_of(const std::string& order, double length) {
  if (order == "O(1)") return 0;
  if (order == "O(N)") return 1;
  if (order == "O(N log N)") return 1 + 1 / std::log(length);
  if (order == "O(N²)") return 2;
  return std::nullopt;
}

// The points of the batch size that the fit uses, or of the one with the most lengths if none has enough.
std::vector<Point> points_of_one_batch(const std::vector<Point>& points) {
  std::map<int64_t, std::vector<Point>> by_batch;
  for (const auto& point : points) by_batch[point.batch].push_back(point);
  const std::vector<Point>* chosen = nullptr;
  const auto is_better = [](const std::vector<Point>& one, const std::vector<Point>& other) {
    const bool one_fits = one.size() >= kMinFittedLengths, other_fits = other.size() >= kMinFittedLengths;
    if (one_fits != other_fits) return one_fits;
    if (one_fits && one.back().length != other.back().length) return one.back().length > other.back().length;
    return one.size() > other.size();
  };
  for (const auto& [batch, group] : by_batch)
    if (!chosen || is_better(group, *chosen)) chosen = &group;
  return chosen ? *chosen : std::vector<Point>();
}

// Removes the shortest lengths, outside of the range that is fitted. The points are those of one batch size.
void keep_fitted_range(std::vector<Point>& points) {
  if (points.size() <= kMinFittedLengths) return;
  const auto from = points.back().length / kFittedRange;
  const auto inside = std::find_if(points.begin(), points.end(), [&](const Point& p) { return p.length >= from; });
  points.erase(points.begin(), std::min(inside, points.end() - std::ptrdiff_t(kMinFittedLengths)));
}

// The logarithms of lengths and values of a fit.
struct Logarithms {
  std::vector<double> length, value;
  double slope(size_t first, size_t count) const {
    return fit_line(std::span(length).subspan(first, count), std::span(value).subspan(first, count)).slope;
  }
};
Logarithms logarithms_of(const std::vector<Point>& points) {
  Logarithms found;
  for (const auto& point : points) {
    found.length.push_back(std::log(point.length));
    found.value.push_back(std::log(point.value));
  }
  return found;
}

void include(Interval& interval, double value) {
  interval.low = std::min(interval.low, value);
  interval.high = std::max(interval.high, value);
}

// The logarithms of the medians of each round that all points have, or nothing if there are too few.
std::vector<Logarithms> by_round(const std::vector<Point>& points) {
  std::vector<const Record*> records;
  for (const auto& point : points) records.push_back(point.record);
  const auto medians = values_of_same_rounds(records, "process_medians_ms");
  std::vector<Logarithms> rounds(medians.empty() ? 0 : medians[0].size());
  for (size_t k = 0; k < medians.size(); ++k)
    for (size_t i = 0; i < rounds.size(); ++i) {
      rounds[i].length.push_back(std::log(points[k].length));
      rounds[i].value.push_back(std::log(medians[k][i]));
    }
  return rounds;
}

void fit_processes(Order& order, const std::vector<Logarithms>& rounds, double confidence) {
  std::vector<double> slopes;
  double without_shortest = 0, without_longest = 0;
  for (const auto& round : rounds) {
    slopes.push_back(round.slope(0, order.lengths));
    without_shortest += round.slope(1, order.lengths - 1) / double(rounds.size());
    without_longest += round.slope(0, order.lengths - 1) / double(rounds.size());
  }
  const auto estimate = mean_estimate(slopes, confidence);
  order.exponent = estimate.mean;
  order.interval = estimate.interval;
  include(order.interval, without_shortest);
  include(order.interval, without_longest);
  order.basis = ExponentBasis::processes;
}

void fit_time(Order& order, const std::vector<Point>& points, double confidence) {
  if (const auto rounds = by_round(points); !rounds.empty()) return fit_processes(order, rounds, confidence);
  const auto all = logarithms_of(points);
  const auto fit = fit_line(all.length, all.value, confidence);
  order.exponent = fit.slope;
  order.interval = fit.slope_interval;
}

double smallest_step(const std::vector<Point>& points) {
  const auto all = logarithms_of(points);
  double smallest = all.slope(0, 2);
  for (size_t i = 1; i + 1 < points.size(); ++i) smallest = std::min(smallest, all.slope(i, 2));
  return smallest;
}

void fit_memory(Order& order, const std::vector<Point>& points) {
  const auto all = logarithms_of(points);
  order.exponent = all.slope(0, points.size());
  order.interval = {*order.exponent, *order.exponent};
  for (size_t i = 0; i + 1 < points.size(); ++i) include(order.interval, all.slope(i, 2));
  order.basis = ExponentBasis::counted;
}

// A row and the points that it is fitted to.
struct Row {
  Order order;
  std::vector<Point> points;
  bool has_exponent() const { return points.size() >= kMinFittedLengths; }
};

std::optional<Row> row_of(const Series& series, const std::string& quantity, const Json& methods) {
  Row row;
  row.points = points_of_one_batch(series.points(quantity));
  if (row.points.empty()) return std::nullopt;
  keep_fitted_range(row.points);
  auto& order = row.order;
  order.series = &series;
  order.quantity = quantity;
  order.lengths = row.points.size();
  order.from = row.points.front().length;
  order.to = row.points.back().length;
  order.batch = row.points.front().batch;
  order.declared = declared_order(series, quantity, methods);
  order.declared_exponent = exponent_of(order.declared, std::sqrt(order.from * order.to));
  return row;
}

}  // namespace

std::string_view verdict_name(GrowthVerdict verdict) {
  constexpr std::string_view names[] = {"consistent with", "consistent with", "contradicts", "cannot tell", ""};
  return names[size_t(verdict)];
}

std::string_view basis_name(ExponentBasis basis) {
  constexpr std::string_view names[] = {"processes", "points", "counted"};
  return names[size_t(basis)];
}

GrowthVerdict Order::verdict() const {
  if (!declared_exponent) return GrowthVerdict::none;
  if (!exponent) return GrowthVerdict::cannot_tell;
  const auto limit = *declared_exponent + kExponentMargin;
  if (interval.low > limit) return *smallest_step > limit ? GrowthVerdict::contradicts : GrowthVerdict::cannot_tell;
  if (interval.high < *declared_exponent - kExponentMargin) return GrowthVerdict::consistent_below;
  if (interval.high <= limit) return GrowthVerdict::consistent;
  return GrowthVerdict::cannot_tell;
}

Growth growth_of(const std::vector<Series>& series, const Json& methods) {
  Growth growth;
  std::vector<Row> rows;
  for (const auto& one : series)
    for (const auto* quantity : {"time", "memory"})
      if (auto row = row_of(one, quantity, methods)) rows.push_back(std::move(*row));
  growth.tests = size_t(std::count_if(rows.begin(), rows.end(), [](const Row& row) {
    return row.has_exponent() && row.order.quantity == "time" && row.order.declared_exponent;
  }));
  for (auto& [order, points] : rows) {
    throw_if_interrupted();
    if (points.size() >= kMinFittedLengths) {
      if (order.quantity == "time") fit_time(order, points, growth.confidence());
      else fit_memory(order, points);
      order.smallest_step = smallest_step(points);
    }
    growth.orders.push_back(std::move(order));
  }
  return growth;
}

Json json_of(const Order& order) {
  const bool fitted = order.exponent.has_value();
  return {{"series", json_of(*order.series)},
          {"quantity", order.quantity},
          {"lengths", order.lengths},
          {"from_length", order.from},
          {"to_length", order.to},
          {"batch", order.batch},
          {"exponent", fitted ? finite_or_null(*order.exponent) : Json()},
          {"interval", fitted ? json_of(order.interval) : Json()},
          {"smallest_step", fitted ? finite_or_null(*order.smallest_step) : Json()},
          {"interval_basis", fitted ? Json(basis_name(order.basis)) : Json()},
          {"declared", order.declared},
          {"declared_exponent", order.declared_exponent ? Json(*order.declared_exponent) : Json()},
          {"verdict", verdict_name(order.verdict())},
          {"grows_more_slowly", order.verdict() == GrowthVerdict::consistent_below}};
}

}  // namespace attnbench
