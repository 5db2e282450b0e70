#include "harness/analysis/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/process/interrupts.h"
#include "harness/text/json_numbers.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

// The fit uses the lengths from an eighth of the longest on. At shorter lengths the fixed costs of a call hide the growth.
constexpr double kFittedRange = 8;
constexpr size_t kMinFittedPoints = 3;
// The measured exponent is a little larger than that of the number of operations where the data outgrow a cache.
constexpr double kExponentMargin = 0.15;

std::vector<Series> series_of(const std::vector<Record>& records) {
  std::vector<Series> all;
  for (const auto& record : records) {
    Series found;
    found.method = record.text("method") + (record.has("external_source") ? " (external)" : "");
    for (const auto& field : fields())
      if (field.role == FieldRole::axis && field.kind != AxisKind::length)
        found.setting[std::string(field.name)] = record.get(field.name);
    found.setting["method"] = found.method;
    const auto same = std::find_if(all.begin(), all.end(), [&](const Series& s) { return s.setting == found.setting; });
    (same == all.end() ? all.emplace_back(std::move(found)) : *same).records.push_back(&record);
  }
  for (auto& series : all)
    std::stable_sort(series.records.begin(), series.records.end(),
                     [](const auto* a, const auto* b) { return a->number("query_len") < b->number("query_len"); });
  return all;
}

// The slope of a declared order at this length on logarithmic axes, or nothing for an order that is not listed here.
std::optional<double> exponent_of(const std::string& order, double length) {
  if (order == "O(1)") return 0;
  if (order == "O(N)") return 1;
  if (order == "O(N log N)") return 1 + 1 / std::log(length);
  if (order == "O(N²)") return 2;
  return std::nullopt;
}

std::string declared_order(const Json& methods, const std::string& spec, const std::string& quantity) {
  for (const auto& method : methods)
    if (method.at("name") == spec.substr(0, spec.find_first_of(": "))) return method.at(quantity + "_order").get<std::string>();
  return "";
}

std::optional<Order> order_of(const Series& series, const std::string& quantity, const Json& methods) {
  auto points = series.points(quantity);
  if (points.empty()) return std::nullopt;
  const auto from = points.back().length / kFittedRange;
  std::erase_if(points, [&](const Point& p) { return p.length < from; });
  if (points.size() < kMinFittedPoints) return std::nullopt;
  Order order{&series, quantity,     points.front().length, points.back().length, {},
              "",      std::nullopt, points.front().batch,  points.back().batch};
  std::vector<double> x, y;
  for (const auto& point : points) {
    x.push_back(std::log(point.length));
    y.push_back(std::log(point.value));
  }
  order.fit = fit_line(x, y);
  if (series.records.front()->text("protocol") == "decode") return order;
  order.declared = declared_order(methods, series.method, quantity);
  order.declared_exponent = exponent_of(order.declared, std::sqrt(order.from * order.to));
  return order;
}

// Nothing for series that differ in an axis that is not compared, or that have fewer than two lengths in common.
std::optional<Crossover> crossover_of(const Series& one, const Series& other, const std::string& quantity) {
  Crossover found{&one, &other, quantity, {}, std::nullopt, {}, false};
  for (const auto& [axis, value] : one.setting) {
    if (value == other.setting.at(axis)) continue;
    if (!find_axis(axis)->compared) return std::nullopt;
    found.differs.push_back(axis);
  }
  // A difference between two methods on two devices could be due to either.
  const auto differs = [&](const char* axis) { return std::count(found.differs.begin(), found.differs.end(), axis) > 0; };
  if (differs("method") && found.differs.size() > 1) return std::nullopt;
  std::vector<double> x, ratio;
  std::vector<Interval> intervals;
  const auto theirs = other.points(quantity);
  for (const auto& mine : one.points(quantity)) {
    const auto same = std::find_if(theirs.begin(), theirs.end(), [&](const Point& p) { return p.length == mine.length; });
    if (same == theirs.end()) continue;
    // log(one / other) is above zero where `other` needs less.
    const double middle = std::log(mine.value / same->value);
    const double below = std::hypot(std::log(mine.interval.low / mine.value), std::log(same->interval.high / same->value));
    const double above = std::hypot(std::log(mine.interval.high / mine.value), std::log(same->interval.low / same->value));
    x.push_back(std::log2(mine.length));
    ratio.push_back(middle);
    intervals.push_back({middle - below, middle + above});
  }
  if (x.size() < 2) return std::nullopt;
  found.other_needs_less_at_first = ratio.front() > 0;
  if (const auto crossing = first_crossing(x, ratio, intervals)) {
    found.length = std::exp2(crossing->at);
    found.interval = {std::exp2(crossing->interval.low), std::exp2(crossing->interval.high)};
  }
  return found;
}

BudgetFit budget_fit(const Series& series, double budget) {
  BudgetFit fit{&series, budget, std::nullopt, "end of the sweep"};
  for (const auto* record : series.records) {
    const auto length = record->get("query_len").get<int64_t>();
    const auto peak = record->number("peak_allocated_bytes"), predicted = record->number("predicted_peak_bytes");
    if (record->measured() && peak <= budget) {
      fit.longest = length;
      continue;
    }
    if (record->measured()) fit.limit = fmt::format("N = {} took {}", length, format_bytes(peak));
    else if (predicted > budget) fit.limit = fmt::format("N = {} needs {} by prediction", length, format_bytes(predicted));
    else fit.limit = fmt::format("N = {}: {}", length, record->text("failure_kind"));
    if (record->text("failure_kind") == kind::unsupported) continue;
    break;
  }
  if (fit.longest && *fit.longest == series.records.back()->get("query_len").get<int64_t>()) fit.limit = "end of the sweep";
  return fit;
}

Json json_of(const Series& series) {
  Json json;
  for (const auto& [axis, value] : series.setting) json[axis] = value;
  return json;
}

}  // namespace

std::vector<Point> Series::points(const std::string& quantity) const {
  std::vector<Point> found;
  for (const auto* record : records) {
    // An implausible time does not make the record's memory implausible.
    if (!record->measured() || (quantity == "time" && record->has("implausible"))) continue;
    const auto batch = std::max(1.0, record->number("batch"));
    Point point{record->number("query_len"), 0, {}, int64_t(batch)};
    if (quantity == "time") {
      point.value = record->number("time_median_ms") / batch;
      point.interval = {record->number("time_ci_low_ms") / batch, record->number("time_ci_high_ms") / batch};
    } else {
      point.value = record->number("peak_extra_bytes") / batch;
      point.interval = {point.value, point.value};
    }
    // Where a length was measured with several batch sizes, the last record counts.
    if (!found.empty() && found.back().length == point.length) found.pop_back();
    if (point.value > 0) found.push_back(point);
  }
  return found;
}

bool Order::contradicts() const { return declared_exponent && fit.slope_interval.low > *declared_exponent + kExponentMargin; }

Analysis analyse(const std::vector<Record>& records, const Json& methods, const std::vector<double>& budgets) {
  Analysis analysis;
  analysis.series = series_of(records);
  const std::string quantities[] = {"time", "memory"};
  for (const auto& series : analysis.series) {
    throw_if_interrupted();
    for (const auto& quantity : quantities)
      if (auto order = order_of(series, quantity, methods)) analysis.orders.push_back(std::move(*order));
    for (const auto budget : budgets)
      if (!series.points("memory").empty()) analysis.fits.push_back(budget_fit(series, budget));
  }
  for (size_t i = 0; i < analysis.series.size(); ++i) {
    throw_if_interrupted();
    for (size_t j = i + 1; j < analysis.series.size(); ++j)
      for (const auto& quantity : quantities)
        if (auto found = crossover_of(analysis.series[i], analysis.series[j], quantity))
          analysis.crossovers.push_back(std::move(*found));
  }
  for (const auto& record : records)
    if (record.has("implausible")) analysis.implausible.push_back(&record);
  return analysis;
}

Json Analysis::to_json() const {
  Json json = {{"orders", Json::array()}, {"crossovers", Json::array()}, {"fits", Json::array()}, {"implausible", Json::array()}};
  for (const auto& order : orders)
    json["orders"].push_back({{"series", json_of(*order.series)},
                              {"quantity", order.quantity},
                              {"from_length", order.from},
                              {"to_length", order.to},
                              {"from_batch", order.batch_from},
                              {"to_batch", order.batch_to},
                              {"exponent", finite_or_null(order.fit.slope)},
                              {"interval", json_of(order.fit.slope_interval)},
                              {"declared", order.declared},
                              {"declared_exponent", order.declared_exponent ? Json(*order.declared_exponent) : Json()},
                              {"contradicts", order.contradicts()}});
  for (const auto& found : crossovers)
    json["crossovers"].push_back({{"one", json_of(*found.one)},
                                  {"other", json_of(*found.other)},
                                  {"quantity", found.quantity},
                                  {"differs", found.differs},
                                  {"length", found.length ? Json(*found.length) : Json()},
                                  {"interval", found.length ? json_of(found.interval) : Json()},
                                  {"other_needs_less_at_first", found.other_needs_less_at_first}});
  for (const auto& fit : fits)
    json["fits"].push_back({{"series", json_of(*fit.series)},
                            {"budget_bytes", fit.budget_bytes},
                            {"longest", fit.longest ? Json(*fit.longest) : Json()},
                            {"limit", fit.limit}});
  for (const auto* record : implausible)
    json["implausible"].push_back({{"case", record->key()}, {"reason", record->text("implausible")}});
  return json;
}

}  // namespace attnbench
