// Selects and names the measured cases of folders, and reads their measures.
#include "harness/exports/exported_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "harness/text/errors.h"
#include "harness/text/safe_text.h"

namespace attnbench {
namespace {

Case case_of(const Record& record) {
  Case c;
  for (const auto& field : fields())
    if (field.role == FieldRole::axis && record.has(field.name)) set(c, field, record.get(field.name));
  return c;
}

void name(ExportedCase& exported) {
  const auto c = case_of(*exported.record);
  exported.name = fmt::format("{}/{}/query_len:{}", safe_text(c.method), c.protocol, c.query_len);
  const auto elsewhere = {"method", "protocol", "query_len", "threads"};
  for (const auto& field : fields()) {
    const bool is_elsewhere = std::find(elsewhere.begin(), elsewhere.end(), field.name) != elsewhere.end();
    if (field.role != FieldRole::axis || is_elsewhere || is_default(c, field)) continue;
    const auto value = get(c, field);
    exported.rest.emplace_back(field.name, value.is_string() ? safe_text(value.get<std::string>()) : value.dump());
    exported.name += fmt::format("/{}:{}", exported.rest.back().first, exported.rest.back().second);
  }
  exported.name += fmt::format("/threads:{}", c.threads);
}

constexpr Interval kNoInterval = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};

}  // namespace

bool Measure::has_interval() const { return std::isfinite(interval.low) && std::isfinite(interval.high); }

ExportedCases exported_cases(const std::vector<RecordsOfFolder>& folders) {
  ExportedCases made;
  std::map<std::string, std::string> folder_of;  // by the key of the case
  for (const auto& [folder, records, processes] : folders) {
    std::map<std::string, std::vector<const Record*>> processes_of;
    for (const auto& process : processes)
      if (process.measured()) processes_of[process.key()].push_back(&process);
    for (const auto& record : records) {
      if (!record.measured() || record.has("external_source") || !record.has("time_median_ms")) {
        ++made.left_out;
        continue;
      }
      ExportedCase exported;
      exported.record = &record;
      exported.processes = processes_of[record.key()];
      name(exported);
      const auto [known, is_new] = folder_of.emplace(record.key(), folder);
      if (!is_new)
        throw UsageError(
            fmt::format("{} and {} both have the case {}; export them one after the other, expected one measurement "
                        "of each case",
                        known->second, folder, exported.name));
      made.cases.push_back(std::move(exported));
    }
  }
  return made;
}

std::vector<Measure> measures_of(const Record& record) {
  std::vector<Measure> measures;
  const auto interval = [&](const char* low, const char* high, double factor) -> Interval {
    return {record.number(low) * factor, record.number(high) * factor};
  };
  if (const double s = record.number("time_median_ms") * 1e-3; s > 0) {
    const auto around = interval("time_ci_low_ms", "time_ci_high_ms", 1e-3);
    measures.push_back({"time", s, around});
    // An interval that reaches zero has no inverse that is finite.
    measures.push_back({"throughput", 1 / s, around.low > 0 ? Interval{1 / around.high, 1 / around.low} : kNoInterval});
  }
  const auto add = [&](const char* measure, const char* column, Interval around) {
    if (record.has(column)) measures.push_back({measure, record.number(column), around});
  };
  add("baseline-ratio", "ratio_median", interval("ratio_ci_low", "ratio_ci_high", 1));
  add("memory", "peak_extra_bytes", kNoInterval);
  add("error", "excess_error", kNoInterval);
  add("approximation-error", "quality_row_error_median", kNoInterval);
  std::erase_if(measures, [](const Measure& measure) { return !std::isfinite(measure.value); });
  return measures;
}

}  // namespace attnbench
