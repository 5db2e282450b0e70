// Groups records into series, and gives the value and the interval of each quantity at each length.
#include "harness/analysis/series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <unordered_map>

#include "attn/method_name.h"
#include "harness/schema/case.h"

namespace attnbench {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Point time_of(const Record& record, double batch) {
  const auto end = [&](const char* column, double missing) {
    return record.has(column) ? record.number(column) / batch : missing;
  };
  return {.value = record.number("time_median_ms") / batch,
          .interval = {end("time_ci_low_ms", -kInfinity), end("time_ci_high_ms", kInfinity)}};
}

Point memory_of(const Record& record, double batch) {
  const double value = record.number("peak_extra_bytes") / batch;
  return {.value = value, .interval = {value, value}};
}

bool is_in_setting(const Field& field) { return field.role == FieldRole::axis && field.kind != AxisKind::length; }

// Equal for records of the same series.
std::string setting_key(const Record& record, const std::string& method) {
  std::string key = method;
  for (const auto& field : fields())
    if (is_in_setting(field) && field.name != "method") append_to_setting_key(key, field, record.get(field.name));
  return key;
}

Series empty_series(const Record& record, const std::string& method) {
  Series series{.method = method, .setting = {}, .records = {}};
  for (const auto& field : fields())
    if (is_in_setting(field)) series.setting[std::string(field.name)] = record.get(field.name);
  series.setting["method"] = method;
  return series;
}

}  // namespace

void append_to_setting_key(std::string& key, const Field& axis, const Json& value) {
  constexpr double kMaxWhole = 0x1p53;
  const auto number = value.is_number_float() ? value.get<double>() : 0.5;
  const bool is_whole = number == std::floor(number) && std::abs(number) < kMaxWhole;
  key += '\n';
  append_to_case_key(key, axis, is_whole ? Json(int64_t(number)) : value);
}

std::vector<Point> Series::points(const std::string& quantity) const {
  std::vector<Point> found;
  for (const auto* record : records) {
    // An implausible time does not make the record's memory implausible.
    if (!record->measured() || (quantity == "time" && record->has("implausible"))) continue;
    const auto batch = std::max(1.0, record->number("batch"));
    auto point = quantity == "time" ? time_of(*record, batch) : memory_of(*record, batch);
    point.length = record->number("query_len");
    point.batch = int64_t(batch);
    point.record = record;
    std::erase_if(found, [&](const Point& p) { return p.length == point.length && p.batch == point.batch; });
    if (point.value > 0) found.push_back(point);
  }
  return found;
}

std::vector<double> process_values(const Record& record, std::string_view column) {
  const auto& list = record.get(column);
  if (!list.is_array() || list.size() < kMinValuesOfInterval) return {};
  const auto is_positive = [](const Json& value) { return value.is_number() && value.get<double>() > 0; };
  if (!std::all_of(list.begin(), list.end(), is_positive)) return {};
  return list.get<std::vector<double>>();
}

std::vector<std::vector<double>> values_of_same_rounds(const std::vector<const Record*>& records, std::string_view column) {
  const bool have_rounds =
      std::all_of(records.begin(), records.end(), [](const auto* record) { return record->has("process_rounds"); });
  std::vector<std::map<double, double>> by_round;
  for (const auto* record : records) {
    const auto values = process_values(*record, column);
    auto rounds = values;
    if (have_rounds) rounds = process_values(*record, "process_rounds");
    else std::iota(rounds.begin(), rounds.end(), 1);
    const bool fits = have_rounds || by_round.empty() || by_round[0].size() == values.size();
    if (values.empty() || rounds.size() != values.size() || !fits) return {};
    by_round.emplace_back();
    for (size_t i = 0; i < values.size(); ++i) by_round.back()[rounds[i]] = values[i];
  }
  if (by_round.empty()) return {};
  std::vector<std::vector<double>> found(records.size());
  for (const auto& [round, first] : by_round[0]) {
    const auto has_round = [&, wanted = round](const auto& values) { return values.contains(wanted); };
    if (!std::all_of(by_round.begin(), by_round.end(), has_round)) continue;
    for (size_t i = 0; i < by_round.size(); ++i) found[i].push_back(by_round[i].at(round));
  }
  if (found[0].size() < kMinValuesOfInterval) return {};
  return found;
}

std::vector<Series> series_of(const std::vector<Record>& records) {
  std::vector<Series> all;
  std::unordered_map<std::string, size_t> index;
  for (const auto& record : records) {
    const auto method = record.text("method") + (record.has("external_source") ? " (external)" : "");
    const auto [place, is_new] = index.emplace(setting_key(record, method), all.size());
    if (is_new) all.push_back(empty_series(record, method));
    all[place->second].records.push_back(&record);
  }
  for (auto& series : all)
    std::stable_sort(series.records.begin(), series.records.end(),
                     [](const auto* a, const auto* b) { return a->number("query_len") < b->number("query_len"); });
  return all;
}

std::string declared_order(const Series& series, const std::string& quantity, const Json& methods) {
  const auto& record = *series.records.front();
  if (const auto said = record.text(quantity + "_order"); !said.empty()) return said;
  const auto spec = record.text("method");
  const auto name = attn::method_name(std::string_view(spec).substr(0, spec.find(' ')));
  const auto key = (record.text("protocol") == "decode" ? "decode_" : "") + quantity + "_order";
  for (const auto& method : methods)
    if (method.at("name") == name) return method.value(key, std::string());
  return "";
}

Json json_of(const Series& series) {
  Json json;
  for (const auto& [axis, value] : series.setting) json[axis] = value;
  return json;
}

}  // namespace attnbench
