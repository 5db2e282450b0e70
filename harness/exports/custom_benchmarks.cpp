// Writes an entry for each measure of each case.
#include "harness/exports/custom_benchmarks.h"

#include <fmt/format.h>

#include "harness/text/safe_text.h"

namespace attnbench {
namespace {

struct UnitOfMeasure {
  const char* unit;
  double factor;  // from the unit of measures_of()
};

UnitOfMeasure unit_of(const std::string& measure) {
  if (measure == "time") return {"ms", 1e3};
  if (measure == "memory") return {"bytes", 1};
  if (measure == "baseline-ratio") return {"of the baseline's time", 1};
  return {"relative error", 1};
}

// What a chart shows beside the value, a line each.
std::string description_of(const Record& record) {
  std::string text;
  for (const auto* column : {"cpu_model", "gpu", "torch_version", "revision", "finished_at"})
    if (record.has(column)) text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", column, safe_text(record.text(column)));
  return text;
}

}  // namespace

Json custom_benchmarks(const std::vector<ExportedCase>& cases) {
  auto made = Json::array();
  for (const auto& exported : cases)
    for (const auto& measure : measures_of(*exported.record)) {
      if (measure.name == "throughput") continue;
      const auto [unit, factor] = unit_of(measure.name);
      Json entry = {{"name", exported.name + " " + measure.name}, {"unit", unit}, {"value", measure.value * factor}};
      if (measure.has_interval())
        entry["range"] =
            fmt::format("95 % interval {:.4g} to {:.4g}", measure.interval.low * factor, measure.interval.high * factor);
      entry["extra"] = description_of(*exported.record);
      made.push_back(std::move(entry));
    }
  return made;
}

}  // namespace attnbench
