// Reads the files of a side, and collects the values of each benchmark.
#include "harness/foreign/run_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "harness/text/errors.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_of(const std::string& path) {
  if (is_foreign_file(path)) return {path};
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error))
    if (entry.is_regular_file() && entry.path().extension() == ".json") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

bool is_run_set(const std::string& path) {
  if (is_foreign_file(path)) return fs::path(path).extension() == ".json";
  std::error_code error;
  bool any = false;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (!entry.is_regular_file()) continue;
    if (entry.path().extension() != ".json") return false;
    // Folders of records have this file beside their records, which may be missing.
    if (entry.path().filename() == "environment.json") return false;
    any = true;
  }
  return any && !error;
}

RunSet read_run_set(const std::string& path, const std::string& measure) {
  RunSet set;
  set.path = path;
  std::map<std::string, size_t> indices;
  for (const auto& file : files_of(path)) {
    const auto run = read_foreign_file(file, measure);
    if (set.runs == 0) {
      set.format = run.format;
      set.measure = run.measure;
    } else if (set.format != run.format) {
      throw UsageError(fmt::format("{}: {}, but other files of {} are {}; expected one format", file, format_name(run.format),
                                   path, format_name(set.format)));
    }
    ++set.runs;
    if (std::find(set.machines.begin(), set.machines.end(), run.machine) == set.machines.end())
      set.machines.push_back(run.machine);
    for (const auto& result : run.results) {
      const auto [found, is_new] = indices.emplace(result.name, set.benchmarks.size());
      if (is_new) set.benchmarks.push_back({result.name, {}, ""});
      auto& benchmark = set.benchmarks[found->second];
      if (result.fault.empty()) benchmark.values.push_back(result.value);
      else if (benchmark.fault.empty()) benchmark.fault = result.fault;
    }
  }
  if (set.runs == 0) throw UsageError(fmt::format("{}: no files *.json of benchmark results", path));
  return set;
}

}  // namespace attnbench
