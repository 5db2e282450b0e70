// Lists the measures of each format.
#include "harness/foreign/measures.h"

#include <fmt/format.h>

#include <cmath>

#include "harness/text/errors.h"
#include "harness/text/nearest.h"
#include "harness/text/units.h"

namespace attnbench {

const char* format_name(ForeignFormat format) {
  switch (format) {
    case ForeignFormat::google_benchmark: return "Google Benchmark JSON";
    case ForeignFormat::pytest_benchmark: return "pytest-benchmark JSON";
    case ForeignFormat::hyperfine: return "hyperfine JSON";
    case ForeignFormat::asv: return "an asv result";
    case ForeignFormat::bencher: return "Bencher Metric Format";
    case ForeignFormat::nvbench: return "nvbench JSON";
  }
  return "";
}

std::string format_names() {
  using enum ForeignFormat;
  std::string names;
  for (const auto format : {google_benchmark, pytest_benchmark, hyperfine, asv, bencher})
    names += format_name(format) + std::string(", ");
  return names + "or " + format_name(nvbench);
}

const std::vector<ForeignMeasure>& measures_of(ForeignFormat format) {
  static const std::vector<ForeignMeasure> google = {
      {"real_time", "s"}, {"cpu_time", "s"}, {"items_per_second", "items/s", true}, {"bytes_per_second", "bytes/s", true}};
  static const std::vector<ForeignMeasure> pytest = {{"median", "s"}, {"mean", "s"}, {"min", "s"}, {"ops", "calls/s", true}};
  static const std::vector<ForeignMeasure> hyperfine = {
      {"median", "s"}, {"mean", "s"}, {"min", "s"}, {"user", "s"}, {"system", "s"}};
  static const std::vector<ForeignMeasure> asv = {{"time", "s"}, {"memory", "bytes"}};
  // Bencher's own measures, and the memory that `attnbench export` writes.
  static const std::vector<ForeignMeasure> bencher = {{"latency", "s", false, 1e-9},
                                                      {"throughput", "operations/s", true},
                                                      {"build-time", "s"},
                                                      {"file-size", "bytes"},
                                                      {"memory", "bytes"}};
  static const std::vector<ForeignMeasure> nvbench = {{"gpu_time", "s"},
                                                      {"cpu_time", "s"},
                                                      {"batch_time", "s"},
                                                      {"items_per_second", "items/s", true},
                                                      {"bytes_per_second", "bytes/s", true}};
  switch (format) {
    case ForeignFormat::google_benchmark: return google;
    case ForeignFormat::pytest_benchmark: return pytest;
    case ForeignFormat::hyperfine: return hyperfine;
    case ForeignFormat::asv: return asv;
    case ForeignFormat::bencher: return bencher;
    case ForeignFormat::nvbench: break;
  }
  return nvbench;
}

const ForeignMeasure& find_measure(ForeignFormat format, const std::string& name, const std::string& where) {
  const auto& measures = measures_of(format);
  if (name.empty()) return measures.front();
  std::vector<std::string> names;
  std::string list;
  for (const auto& measure : measures) {
    if (measure.name == name) return measure;
    names.push_back(measure.name);
    list += (list.empty() ? "" : ", ") + measure.name;
  }
  throw UsageError(
      fmt::format("{}: of the measure '{}' it is not known whether more is better{}; expected one that is known of {}: {}", where,
                  name, suggestion(name, names), format_name(format), list));
}

double cost_of(const ForeignMeasure& measure, double value) { return measure.more_is_better ? 1 / value : value; }

std::string value_text(const ForeignMeasure& measure, double value) {
  if (std::isnan(value)) return "–";
  if (measure.unit == "s") return format_ms(value * 1e3, 4);
  if (measure.unit == "bytes") return format_bytes(value);
  return fmt::format("{:.4g} {}", value, measure.unit);
}

}  // namespace attnbench
