// Tells the format of a file, has its reader read it, and checks the values.
#include "harness/foreign/foreign_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "harness/files/text_file.h"
#include "harness/foreign/format_readers.h"
#include "harness/statistics/statistics.h"
#include "harness/text/errors.h"
#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

// JSON has no NaN and no infinity, but Python's json module and Google Benchmark write them where a value is missing. Replaces
// these words outside of texts by null.
std::string without_nan(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  bool in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      clean += c;
      if (c == '\\' && i + 1 < text.size()) clean += text[++i];
      else if (c == '"') in_text = false;
      continue;
    }
    in_text = c == '"';
    bool is_word = false;
    for (const std::string_view word : {"NaN", "-NaN", "Infinity", "-Infinity"})
      if (text.substr(i, word.size()) == word) {
        clean += "null";
        i += word.size() - 1;
        is_word = true;
        break;
      }
    if (!is_word) clean += c;
  }
  return clean;
}

bool has(const Json& json, const char* name, Json::value_t type) {
  const auto found = json.find(name);
  return found != json.end() && found->type() == type;
}

// Whether the object has an object for each benchmark, with an object for each measure.
bool looks_like_bencher(const Json& file) {
  const auto is_measure = [](const Json& measure) { return measure.is_object() && measure.contains("value"); };
  const auto is_benchmark = [&](const Json& benchmark) {
    return benchmark.is_object() && !benchmark.empty() && std::any_of(benchmark.begin(), benchmark.end(), is_measure);
  };
  return !file.empty() && std::any_of(file.begin(), file.end(), is_benchmark);
}

ForeignFormat format_of(const Json& file, const std::string& where) {
  using Type = Json::value_t;
  if (file.is_object()) {
    const bool has_benchmarks = has(file, "benchmarks", Type::array);
    if (has_benchmarks && has(file, "machine_info", Type::object)) return ForeignFormat::pytest_benchmark;
    if (has_benchmarks && has(file, "context", Type::object)) return ForeignFormat::google_benchmark;
    if (has_benchmarks && has(file, "meta", Type::object)) return ForeignFormat::nvbench;
    if (has(file, "results", Type::object) && has(file, "result_columns", Type::array)) return ForeignFormat::asv;
    if (has(file, "results", Type::array)) return ForeignFormat::hyperfine;
    if (looks_like_bencher(file)) return ForeignFormat::bencher;
  }
  throw UsageError(fmt::format("{}: no benchmark results in a known format; expected {}", where, format_names()));
}

}  // namespace

ForeignCollector::ForeignCollector(ForeignFormat format, const ForeignMeasure& measure, std::string where)
    : where_(std::move(where)) {
  run_.format = format;
  run_.measure = measure;
}

void ForeignCollector::fail(const std::string& message) const { throw UsageError(fmt::format("{}: {}", where_, message)); }

size_t ForeignCollector::index_of(const std::string& name) {
  const auto [found, is_new] = indices_.emplace(name, run_.results.size());
  if (!is_new) return found->second;
  if (name.empty()) fail(fmt::format("a benchmark of {} has no name", format_name(run_.format)));
  if (name.size() > kLongestForeignName)
    fail(fmt::format("the name of the benchmark {} has {} bytes, expected at most {}", quoted_name(name), name.size(),
                     kLongestForeignName));
  if (run_.results.size() == kMostForeignResults) fail(fmt::format("more than {} benchmarks", kMostForeignResults));
  run_.results.push_back({name, std::nan(""), ""});
  values_.emplace_back();
  return found->second;
}

void ForeignCollector::add(const std::string& name, const Json& value, double factor) {
  const auto index = index_of(name);
  const double number = value.is_number() ? value.get<double>() * factor * run_.measure.factor : std::nan("");
  if (std::isfinite(number) && number > 0) values_[index].push_back(number);
  else if (value.is_number() || value.is_null())
    add_fault(name, fmt::format("{} is {}, expected a number above 0", run_.measure.name,
                                value.is_null() ? "missing or NaN" : shortened(value.dump(), 40)));
  else
    fail(fmt::format("{} of the benchmark {} is {}, expected a number", run_.measure.name, quoted_name(name), value.type_name()));
}

void ForeignCollector::add_fault(const std::string& name, const std::string& fault) {
  auto& result = run_.results[index_of(name)];
  if (result.fault.empty()) result.fault = fault;
}

void ForeignCollector::leave_out(const std::string& name) {
  if (run_.left_out.size() == kMostForeignResults) fail(fmt::format("more than {} benchmarks", kMostForeignResults));
  run_.left_out.push_back(name);
}

const Json& ForeignCollector::checked_object(const Json& item, const std::string& of) const {
  if (!item.is_object()) fail(fmt::format("{} is {}, expected an object", of, item.type_name()));
  return item;
}

const Json& ForeignCollector::object_in(const Json& json, const char* name, const std::string& of) const {
  const auto found = json.find(name);
  if (found == json.end()) fail(fmt::format("{} has no {}, expected an object", of, name));
  if (!found->is_object()) fail(fmt::format("{} of {} is {}, expected an object", name, of, found->type_name()));
  return *found;
}

const Json& ForeignCollector::list_in(const Json& json, const char* name, const std::string& of) const {
  const auto found = json.find(name);
  if (found == json.end()) fail(fmt::format("{} has no {}, expected a list", of, name));
  if (!found->is_array()) fail(fmt::format("{} of {} is {}, expected a list", name, of, found->type_name()));
  return *found;
}

std::string ForeignCollector::text_in(const Json& json, const char* name, const std::string& of) const {
  const auto found = json.find(name);
  if (found == json.end()) fail(fmt::format("{} has no {}, expected text", of, name));
  if (!found->is_string()) fail(fmt::format("{} of {} is {}, expected text", name, of, found->type_name()));
  return found->get<std::string>();
}

ForeignRun ForeignCollector::take() {
  if (run_.results.empty()) {
    std::string measures;
    for (const auto& measure : attnbench::measures_of(run_.format)) measures += (measures.empty() ? "" : ", ") + measure.name;
    fail(run_.left_out.empty()
             ? fmt::format("{} without any benchmark", format_name(run_.format))
             : fmt::format(
                   "no benchmark has the measure '{}' ({} {} others, such as {}); expected one of the measures {}, because "
                   "only of these it is known whether more is better",
                   run_.measure.name, count_of(run_.left_out.size(), "benchmark"), has_or_have(run_.left_out.size()),
                   quoted_name(run_.left_out.front()), measures));
  }
  for (size_t i = 0; i < run_.results.size(); ++i) {
    auto& result = run_.results[i];
    if (result.fault.empty()) result.value = median(values_[i]);
  }
  return std::move(run_);
}

std::string quoted_name(const std::string& name) {
  constexpr size_t kLongest = 80;
  return "'" + shortened(safe_text(name), kLongest) + "'";
}

std::string text_or(const Json& json, const char* name, const std::string& otherwise) {
  if (!json.is_object()) return otherwise;
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

ForeignRun read_foreign_run(std::string_view text, const std::string& where, const std::string& measure) {
  if (text.size() > kLongestForeignFile)
    throw UsageError(
        fmt::format("{}: {} bytes, expected at most {} of benchmark results", where, text.size(), kLongestForeignFile));
  Json file;
  try {
    file = parse_json(without_nan(text));
  } catch (const JsonError& error) {
    throw UsageError(fmt::format("{}: not JSON: {}; expected {}", where, error.what(), format_names()));
  }
  const auto format = format_of(file, where);
  ForeignCollector collector(format, find_measure(format, measure, where), where);
  switch (format) {
    case ForeignFormat::google_benchmark: read_google_benchmark(file, collector); break;
    case ForeignFormat::pytest_benchmark: read_pytest_benchmark(file, collector); break;
    case ForeignFormat::hyperfine: read_hyperfine(file, collector); break;
    case ForeignFormat::asv: read_asv_result(file, collector); break;
    case ForeignFormat::bencher: read_bencher_metrics(file, collector); break;
    case ForeignFormat::nvbench: read_nvbench(file, collector); break;
  }
  return collector.take();
}

ForeignRun read_foreign_file(const std::string& path, const std::string& measure) {
  return read_foreign_run(read_text_file(path, kLongestForeignFile), path, measure);
}

bool is_foreign_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

}  // namespace attnbench
