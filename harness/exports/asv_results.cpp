// Groups the measures of cases by machine and benchmark, and writes asv's files of version 2 (machines: version 1).
#include "harness/exports/asv_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>

#include "harness/exports/utc_dates.h"
#include "harness/files/replace_file.h"
#include "harness/files/text_file.h"
#include "harness/records/folder_lock.h"
#include "harness/records/folder_names.h"
#include "harness/text/errors.h"
#include "harness/text/safe_text.h"

namespace attnbench {
namespace {

constexpr size_t kLongestAsvFile = 64u << 20;
constexpr auto kVersion = "1";  // the version of every benchmark; asv shows only results of this version
constexpr double kWidest = std::numeric_limits<double>::max();

// The values of the parameters of one case, in the form of Python's repr(), as asv has them.
using Parameters = std::pair<std::string, std::string>;

Parameters parameters_of(const ExportedCase& exported) {
  std::string rest;
  for (const auto& [axis, value] : exported.rest) rest += fmt::format("{}{}:{}", rest.empty() ? "" : "/", axis, value);
  rest += fmt::format("{}threads:{}", rest.empty() ? "" : "/", exported.record->get("threads").dump());
  std::string quoted = "'";
  for (const char c : rest) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return {exported.record->get("query_len").dump(), quoted + "'"};
}

// What asv keeps of several processes.
struct Statistics {
  double ci_99_low = 0, ci_99_high = kWidest, q_25 = 0, q_75 = 0;
};

// The narrowest symmetric interval between order statistics that contains the median with a probability of at least 99 %, for any
// distribution of independent values. An interval that begins at the k-th value does if P(B < k) ≤ 0.5 % for the number B of
// heads in n throws of a fair coin.
Statistics statistics_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  Statistics made{.q_25 = quantile(values, 0.25), .q_75 = quantile(values, 0.75)};
  const auto n = values.size();
  double probability = std::pow(0.5, double(n)), below = probability;
  for (size_t k = 1; below <= 0.005 && 2 * k <= n; ++k) {
    made.ci_99_low = values[k - 1];
    made.ci_99_high = values[n - k];
    probability *= double(n - k + 1) / double(k);
    below += probability;
  }
  return made;
}

struct Entry {
  double value = 0;
  int64_t started_at_ms = 0;
  std::vector<double> samples;
};
using Entries = std::map<Parameters, Entry>;
struct AsvBenchmark {
  std::string measure;
  std::vector<std::string> lengths, rests;  // the values of the parameters, in the order of the cases
  Entries entries;
};

struct Machine {
  Record record;  // one of its records
  int64_t last_ms = 0;
  std::vector<std::string> order;  // of the benchmarks
  std::map<std::string, AsvBenchmark> benchmarks;
};

void add_new(std::vector<std::string>& values, const std::string& value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

void add_case(Machine& machine, const ExportedCase& exported) {
  const auto& record = *exported.record;
  const int64_t ms = record.has("finished_at") ? seconds_since_1970(record.text("finished_at")) * 1000 : 0;
  machine.record = record;
  machine.last_ms = std::max(machine.last_ms, ms);
  const auto parameters = parameters_of(exported);
  for (const auto& measure : measures_of(record)) {
    if (measure.name == "throughput") continue;
    const auto name = fmt::format("{}.{}.{}", safe_text(record.text("method")), record.text("protocol"), measure.name);
    if (!machine.benchmarks.contains(name)) machine.order.push_back(name);
    auto& benchmark = machine.benchmarks[name];
    benchmark.measure = measure.name;
    add_new(benchmark.lengths, parameters.first);
    add_new(benchmark.rests, parameters.second);
    auto& entry = benchmark.entries[parameters] = {measure.value, ms, {}};
    if (measure.name != "time") continue;
    if (const auto medians = record.numbers("process_medians_ms"); medians.size() >= 2)
      for (const auto median_ms : medians) entry.samples.push_back(median_ms * 1e-3);
  }
}

// The results of a benchmark: a list for each of these columns, with a value for each combination of parameters.
constexpr auto kColumns = {"result",     "params",     "version",      "started_at",   "stats_ci_99_a", "stats_ci_99_b",
                           "stats_q_25", "stats_q_75", "stats_number", "stats_repeat", "samples"};

Json results_of(const AsvBenchmark& benchmark) {
  Json values, low, high, q_25, q_75, number, repeat, samples;
  int64_t started_at = 0;
  bool any_samples = false;
  for (const auto& length : benchmark.lengths)
    for (const auto& rest : benchmark.rests) {
      const auto found = benchmark.entries.find({length, rest});
      const bool has_samples = found != benchmark.entries.end() && !found->second.samples.empty();
      const auto made = has_samples ? statistics_of(found->second.samples) : Statistics();
      const auto add = [&](Json& list, const Json& value) { list.push_back(has_samples ? value : Json()); };
      values.push_back(found == benchmark.entries.end() ? Json() : Json(found->second.value));
      add(low, made.ci_99_low);
      add(high, made.ci_99_high);
      add(q_25, made.q_25);
      add(q_75, made.q_75);
      add(number, 1);
      add(repeat, has_samples ? found->second.samples.size() : 0);
      add(samples, has_samples ? Json(found->second.samples) : Json());
      any_samples |= has_samples;
      if (found != benchmark.entries.end()) started_at = std::max(started_at, found->second.started_at_ms);
    }
  auto row = Json::array({values, Json::array({benchmark.lengths, benchmark.rests}), kVersion, started_at});
  if (any_samples)
    for (auto* list : {&low, &high, &q_25, &q_75, &number, &repeat, &samples}) row.push_back(std::move(*list));
  return row;
}

std::string unit_of_asv(const std::string& measure) {
  if (measure == "time") return "seconds";
  if (measure == "memory") return "bytes";
  return measure == "baseline-ratio" ? "of the baseline's time" : "relative error";
}

std::string text_of_asv(const Json& json) { return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n"; }

// The content of a benchmarks.json that exists already; an empty object if there is none.
Json known_benchmarks(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return Json::object();
  try {
    auto json = parse_json(read_text_file(path.string(), kLongestAsvFile));
    if (!json.is_object() || json.value("version", Json()) != Json(2))
      throw UsageError(fmt::format("{} is no list of asv's benchmarks of version 2, and is left as it is", path.string()));
    return json;
  } catch (const JsonError& error) {
    throw UsageError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

// The values of the parameter with this index: those that `known` already has, followed by those of `ours` that are new.
std::vector<std::string> with_known(const Json& known, size_t index, const std::vector<std::string>& ours) {
  std::vector<std::string> values;
  if (known.is_object() && known.contains("params") && known["params"].is_array() && known["params"].size() == 2 &&
      known["params"][index].is_array())
    for (const auto& value : known["params"][index])
      if (value.is_string()) add_new(values, value.get<std::string>());
  for (const auto& value : ours) add_new(values, value);
  return values;
}

Json described(const std::string& name, const AsvBenchmark& benchmark, const Json& known) {
  return {{"code", ""},
          {"name", name},
          {"param_names", Json::array({"query_len", "case"})},
          {"params", Json::array({with_known(known, 0, benchmark.lengths), with_known(known, 1, benchmark.rests)})},
          {"pretty_name", name},
          {"timeout", 0},
          {"type", benchmark.measure == "time" ? "time" : "track"},
          {"unit", unit_of_asv(benchmark.measure)},
          {"version", kVersion}};
}

}  // namespace

void write_asv_results(const std::vector<ExportedCase>& cases, const AsvCommit& commit, const std::filesystem::path& folder) {
  if (commit.hash.size() != 40 || !std::all_of(commit.hash.begin(), commit.hash.end(),
                                               [](unsigned char c) { return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f'); }))
    throw UsageError(
        fmt::format("the commit of asv's results is '{}', expected its 40 hexadecimal digits in lower case, such as "
                    "--commit \"$(git rev-parse HEAD)\"",
                    safe_text(commit.hash)));
  std::map<std::pair<std::string, std::string>, Machine> machines;  // by the name of the machine and the version of torch
  for (const auto& exported : cases) {
    const auto& record = *exported.record;
    const auto machine = machine_slug(record) + (record.has("gpu") ? "-" + folder_name(record.text("gpu")) : "");
    add_case(machines[{machine, record.text("torch_version")}], exported);
  }
  const auto path = folder / "benchmarks.json";
  auto benchmarks = known_benchmarks(path);
  make_folder(folder.string());
  for (const auto& [names, machine] : machines) {
    const auto& [name, torch] = names;
    const auto text = [&](const char* column) { return safe_text(machine.record.text(column)); };
    const auto of_machine = folder / name;
    make_folder(of_machine.string());
    const Json description = {{"machine", name},
                              {"os", "Linux"},
                              {"arch", text("instruction_set")},
                              {"cpu", text("cpu_model")},
                              {"num_cpu", machine.record.get("processors").dump()},
                              {"ram", ""}};
    auto with_version = description;
    with_version["version"] = 1;
    replace_file(of_machine.string(), "machine.json", text_of_asv(with_version));
    auto params = description;
    params["torch"] = safe_text(torch);
    const auto environment = "attnbench-torch-" + folder_name(torch);
    Json results = Json::object();
    for (const auto& benchmark_name : machine.order) {
      const auto& benchmark = machine.benchmarks.at(benchmark_name);
      results[benchmark_name] = results_of(benchmark);
      auto& known = benchmarks[benchmark_name];
      known = described(benchmark_name, benchmark, known);
    }
    const Json file = {{"commit_hash", commit.hash},
                       {"env_name", environment},
                       {"date", commit.time_s >= 0 ? commit.time_s * 1000 : machine.last_ms},
                       {"params", params},
                       {"python", ""},
                       {"requirements", {{"torch", safe_text(torch)}}},
                       {"env_vars", Json::object()},
                       {"result_columns", kColumns},
                       {"results", results},
                       {"durations", Json::object()},
                       {"version", 2}};
    replace_file(of_machine.string(), commit.hash.substr(0, 8) + "-" + environment + ".json", text_of_asv(file));
  }
  benchmarks["version"] = 2;
  replace_file(folder.string(), path.filename().string(), text_of_asv(benchmarks));
}

}  // namespace attnbench
