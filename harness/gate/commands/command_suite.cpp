// Runs the command in turns, and matches the benchmarks of its runs by their names.
#include "harness/gate/commands/command_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "harness/machine/machine.h"
#include "harness/text/errors.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

std::map<std::string, const ForeignResult*> by_name(const ForeignRun& run) {
  std::map<std::string, const ForeignResult*> results;
  for (const auto& result : run.results) results[result.name] = &result;
  return results;
}

}  // namespace

CommandSuite::CommandSuite(BenchmarkCommand command, SuiteOptions options, std::vector<Side> sides, std::filesystem::path scratch)
    : GateSuite(std::move(options), std::move(sides)), command_(std::move(command)), scratch_(std::move(scratch)) {
  for (auto& side : sides_) {
    side.environment.set("cpu_model", cpu_model());
    side.environment.set("processors", available_processors());
  }
}

ForeignRun CommandSuite::run(size_t side) {
  const auto& of_side = sides_.at(side);
  // For benchmarks that can slow themselves down, to check the gate.
  const auto slowdown = fmt::format("ATTNBENCH_INJECT={:g}", of_side.injected_slowdown_percent);
  try {
    return run_benchmark_command(command_, of_side.name, of_side.worker.launcher, {slowdown}, scratch_);
  } catch (const WorkerError& error) {
    throw WorkerError(without_copies(error.what(), sides_));
  }
}

void CommandSuite::check() {
  std::vector<ForeignRun> runs;
  for (size_t side = 0; side < sides_.size(); ++side) {
    note(fmt::format("running the command on the {}", sides_[side].name));
    runs.push_back(run(side));
    if (runs[side].format != runs[0].format)
      throw WorkerError(fmt::format(
          "--command: `{}` writes {} in the copy of the {} and {} in that of the {}, expected one format", command_.text,
          format_name(runs[0].format), sides_[0].name, format_name(runs[side].format), sides_[side].name));
  }
  measure_ = runs[0].measure;
  for (size_t side = 0; side < runs.size(); ++side)
    if (const auto& left_out = runs[side].left_out; !left_out.empty())
      note(fmt::format("on the {}, {} without the measure {} {} left out, such as {}", sides_[side].name,
                       count_of(left_out.size(), "benchmark"), measure_.name, is_or_are(left_out.size()), left_out.front()));
  std::map<std::string, size_t> indices;
  for (const auto& run : runs)
    for (const auto& result : run.results)
      if (indices.emplace(result.name, cases_.size()).second) {
        auto& suite_case = cases_.emplace_back();
        suite_case.name = result.name;
        suite_case.measure = measure_;
        suite_case.sides.resize(sides_.size());
      }
  for (size_t side = 0; side < runs.size(); ++side) {
    const auto results = by_name(runs[side]);
    for (auto& suite_case : cases_) {
      const auto found = results.find(suite_case.name);
      if (found == results.end() && side == 0) suite_case.lacking = fmt::format("the {} has no such benchmark", sides_[0].name);
      else if (found == results.end()) suite_case.unusable = fmt::format("the {} has no such benchmark", sides_[side].name);
      else if (!found->second->fault.empty() && suite_case.unusable.empty())
        suite_case.unusable = fmt::format("the {} gives no value: {}", sides_[side].name, found->second->fault);
    }
  }
  waiting_.resize(cases_.size());
}

void CommandSuite::add_pair() {
  std::vector<size_t> order(sides_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random_);
  std::vector<ForeignRun> runs(sides_.size());
  for (const auto side : order) runs[side] = run(side);
  std::vector<std::map<std::string, const ForeignResult*>> results;
  for (const auto& run : runs) results.push_back(by_name(run));
  for (size_t i = 0; i < cases_.size(); ++i) {
    auto& suite_case = cases_[i];
    if (!suite_case.is_compared()) continue;
    std::vector<double> values;
    for (size_t side = 0; side < sides_.size() && suite_case.unusable.empty(); ++side) {
      const auto found = results[side].find(suite_case.name);
      if (found == results[side].end())
        suite_case.unusable = fmt::format("the {} did not report the benchmark in a later run", sides_[side].name);
      else if (!found->second->fault.empty())
        suite_case.unusable = fmt::format("the {} gave no value in a later run: {}", sides_[side].name, found->second->fault);
      else values.push_back(found->second->value);
    }
    if (suite_case.unusable.empty()) waiting_[i].push_back(std::move(values));
  }
}

// Adds the first waiting pair of the case to what was measured of it.
void CommandSuite::take(size_t index) {
  auto& suite_case = cases_[index];
  if (!suite_case.is_compared() || waiting_[index].empty()) return;
  const auto values = std::move(waiting_[index].front());
  waiting_[index].pop_front();
  for (size_t side = 0; side < values.size(); ++side) {
    suite_case.sides[side].medians.push_back(values[side]);
    suite_case.sides[side].log_ratios.push_back(std::log(cost_of(measure_, values[side]) / cost_of(measure_, values[0])));
  }
}

void CommandSuite::measure(std::vector<size_t> cases) {
  add_pair();
  for (const auto i : cases) take(i);
}

void CommandSuite::measure_one(size_t index) {
  if (waiting_.at(index).empty()) add_pair();
  take(index);
}

void CommandSuite::count_instructions() {
  throw UsageError("--instructions counts those of attention methods, not those of a command");
}

}  // namespace attnbench
