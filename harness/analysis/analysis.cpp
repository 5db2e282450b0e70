// Puts growth, crossovers and memory budgets of a sweep together, and gives the analysis as JSON.
#include "harness/analysis/analysis.h"

#include <fmt/format.h>

#include "harness/text/units.h"

namespace attnbench {
namespace {

// Why a record says that its length does not fit the budget, or says nothing about it.
std::string limit_of(const Record& record, double budget) {
  const auto length = record.get("query_len").get<int64_t>();
  if (record.measured()) return fmt::format("N = {} took {}", length, format_bytes(record.number("peak_allocated_bytes")));
  const auto predicted = record.number("predicted_peak_bytes"), own_limit = record.number("memory_limit_bytes");
  if (predicted > budget) return fmt::format("N = {} needs {} by prediction", length, format_bytes(predicted));
  const auto failure_kind = record.text("failure_kind");
  if ((failure_kind == kind::predicted_oom || failure_kind == kind::oom) && own_limit < budget)
    return fmt::format("the sweep, not the budget: its memory limit was {}, and N = {} needs {} by prediction",
                       format_bytes(own_limit), length, format_bytes(predicted));
  return fmt::format("N = {}: {}", length, failure_kind);
}

BudgetFit budget_fit(const Series& series, double budget) {
  BudgetFit fit{&series, budget, std::nullopt, kEndOfSweep};
  for (const auto* record : series.records) {
    const auto length = record->get("query_len").get<int64_t>();
    if (record->measured() && record->number("peak_allocated_bytes") <= budget) {
      fit.longest = length;
      continue;
    }
    fit.limit = limit_of(*record, budget);
    if (record->text("failure_kind") == kind::unsupported) continue;
    break;
  }
  if (fit.longest && *fit.longest == series.records.back()->get("query_len").get<int64_t>()) fit.limit = kEndOfSweep;
  return fit;
}

}  // namespace

Analysis analyse(const std::vector<Record>& records, const Json& methods, const std::vector<double>& budgets) {
  Analysis analysis;
  analysis.series = series_of(records);
  analysis.growth = growth_of(analysis.series, methods);
  analysis.crossovers = crossovers_of(analysis.series, methods);
  for (const auto& series : analysis.series)
    for (const auto budget : budgets)
      if (!series.points("memory").empty()) analysis.fits.push_back(budget_fit(series, budget));
  for (const auto& record : records)
    if (record.has("implausible")) analysis.implausible.push_back(&record);
  return analysis;
}

Json Analysis::to_json() const {
  Json json = {{"orders", Json::array()}, {"crossovers", Json::array()}, {"fits", Json::array()}, {"implausible", Json::array()}};
  json["order_tests"] = {
      {"error_rate", kErrorRate}, {"tests", growth.tests}, {"confidence", growth.confidence()}, {"margin", kExponentMargin}};
  for (const auto& order : growth.orders) json["orders"].push_back(json_of(order));
  for (const auto& found : crossovers) json["crossovers"].push_back(json_of(found));
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
