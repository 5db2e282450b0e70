// Writes the gauges one after the other, each with its samples of all cases.
#include "harness/exports/openmetrics.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "harness/exports/utc_dates.h"
#include "harness/text/safe_text.h"

namespace attnbench {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

std::string text_of(const Labels& labels) {
  std::string text = "{";
  for (const auto& [name, value] : labels) {
    text += fmt::format("{}{}=\"", text.size() == 1 ? "" : ",", name);
    for (const char c : safe_text(value)) {
      if (c == '"' || c == '\\') text += '\\';
      text += c;
    }
    text += '"';
  }
  return text + "}";
}

struct Gauge {
  std::string measure;  // of measures_of()
  std::string name, unit, help;
};

const std::vector<Gauge>& gauges() {
  static const std::vector<Gauge> all = {
      {"time", "time", "seconds", "median time of a call"},
      {"throughput", "throughput", "calls", "calls per second"},
      {"baseline-ratio", "baseline", "ratio", "time divided by that of the baseline that was measured in turns"},
      {"memory", "memory", "bytes", "memory above the inputs at the peak of a call"},
      {"error", "error", "ratio", "largest relative error against the float64 reference of the method"},
      {"approximation-error", "approximation_error", "ratio", "median relative error of a row against exact attention"},
  };
  return all;
}

// A gauge with these samples, which are the labels and the value of a line each. Nothing if there is no sample.
std::string family(const std::string& name, const std::string& unit, const std::string& help,
                   const std::vector<std::pair<std::string, double>>& samples) {
  if (samples.empty()) return "";
  const auto full_name = fmt::format("attnbench_{}_{}", name, unit);
  auto text = fmt::format("# TYPE {0} gauge\n# UNIT {0} {1}\n# HELP {0} {2}\n", full_name, unit, help);
  for (const auto& [labels, value] : samples) text += fmt::format("{}{} {}\n", full_name, labels, value);
  return text;
}

}  // namespace

std::string openmetrics(const std::vector<ExportedCase>& cases) {
  struct Samples {
    std::vector<std::pair<std::string, double>> values, low, high;
  };
  std::map<std::string, Samples> samples;  // by the measure
  std::vector<std::pair<std::string, double>> finished;
  std::set<std::string> environments;
  for (const auto& exported : cases) {
    const auto& record = *exported.record;
    Labels labels = {{"method", record.text("method")},
                     {"protocol", record.text("protocol")},
                     {"query_len", record.get("query_len").dump()},
                     {"threads", record.get("threads").dump()}};
    labels.insert(labels.end(), exported.rest.begin(), exported.rest.end());
    const auto of_case = text_of(labels);
    for (const auto& measure : measures_of(record)) {
      auto& of_measure = samples[measure.name];
      of_measure.values.emplace_back(of_case, measure.value);
      if (!measure.has_interval()) continue;
      of_measure.low.emplace_back(of_case, measure.interval.low);
      of_measure.high.emplace_back(of_case, measure.interval.high);
    }
    if (record.has("finished_at")) finished.emplace_back(of_case, double(seconds_since_1970(record.text("finished_at"))));
    Labels environment;
    for (const auto* column : {"host", "cpu_model", "gpu", "build", "revision", "torch_version"})
      if (record.has(column)) environment.emplace_back(column, record.text(column));
    if (!environment.empty()) environments.insert(text_of(environment));
  }
  std::string text;
  for (const auto& [measure, name, unit, help] : gauges()) {
    const auto& [values, low, high] = samples[measure];
    text += family(name, unit, help, values);
    text += family(name + "_low", unit, "low end of the 95 % interval of attnbench_" + name + "_" + unit, low);
    text += family(name + "_high", unit, "high end of the 95 % interval of attnbench_" + name + "_" + unit, high);
  }
  text += family("finished_timestamp", "seconds", "when the case was measured, in seconds since 1970", finished);
  if (!environments.empty())
    text += "# TYPE attnbench_environment_info gauge\n# HELP attnbench_environment_info the machines and builds that measured\n";
  for (const auto& labels : environments) text += "attnbench_environment_info" + labels + " 1\n";
  return text + "# EOF\n";
}

}  // namespace attnbench
