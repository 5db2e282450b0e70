// Checks the cases of a suite on each side, and has workers measure them in turns or callgrind count their instructions.
#include "harness/gate/gate_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <future>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "attn/method_name.h"
#include "harness/gate/case_labels.h"
#include "harness/statistics/statistics.h"
#include "harness/sweep/case_plans.h"
#include "harness/sweep/case_runner.h"
#include "harness/sweep/sweep_file.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"

namespace attnbench {
namespace {

// The median of log(b/a) over the turns, where a and b are the samples of two processes that took turns.
double median_log_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) ratios.push_back(std::log(b[i] / a[i]));
  return median(std::move(ratios));
}

// The largest length at which cases are verified before they are measured.
constexpr int64_t kSmallLength = 300;

// Sets one thread and, if the method has the option `implementation`, its AVX2 kernels, because callgrind does not support
// AVX-512.
void force_avx2(Case& c, const Catalogue& catalogue) {
  c.threads = 1;
  const auto name = attn::method_name(c.method);
  if (c.method.find("implementation=") != std::string::npos) return;
  for (const auto& method : catalogue.methods())
    if (method.at("name") == name)
      for (const auto& option : method.at("options")) {
        const auto& choices = option.at("choices");
        if (option.at("name") == "implementation" && std::find(choices.begin(), choices.end(), "avx2") != choices.end())
          c.method += name == c.method ? ":implementation=avx2" : ",implementation=avx2";
      }
}

// The number of instructions in what callgrind prints; nothing if it printed none.
std::optional<double> collected_instructions(const std::string& diagnostics) {
  constexpr std::string_view label = "Collected : ";
  const auto at = diagnostics.rfind(label);
  if (at == std::string::npos) return std::nullopt;
  double count = 0;
  const auto* const begin = diagnostics.data() + at + label.size();
  const auto [end, error] = std::from_chars(begin, diagnostics.data() + diagnostics.size(), count);
  if (error != std::errc() || end == begin || !(count > 0)) return std::nullopt;
  return count;
}

// The path of the file that a method in Python is a function of, such as "kernels/mine.py" for
// "kernels/mine.py:attention:window=64"; empty for any other method.
std::string python_file_of(const std::string& method) {
  const auto name = attn::method_name(method);
  return attn::is_python_name(name) ? std::string(attn::split_python_name(name).file) : "";
}

// The case as this side measures it.
Case case_of(const SuiteCase& suite_case, const Side& side) {
  auto c = suite_case.c;
  c.injected_slowdown_percent = side.injected_slowdown_percent;
  return c;
}

// Throws UsageError for a file, named from the folder of the suite, that is not in the side's copy of a repository, because it
// would be the same on both sides.
void check_place(const std::string& file, const Side& side, const std::string& suite) {
  if (!side.files || file.empty()) return;
  const auto path = (side.files->methods / file).lexically_normal().lexically_relative(side.files->root);
  if (path.empty() || *path.begin() == "..")
    throw UsageError(
        fmt::format("{}: {} lies outside of the repository, expected a path in it, from the folder of the suite", suite, file));
}

// The side's worker with the plug-ins that the suite names. Those of a state of a repository are in the side's copy, where the
// base may lack some.
WorkerProgram with_plugins_of(const std::string& suite, const Side& side) {
  if (!side.files) return with_plugins_of(suite, side.worker);
  std::vector<std::string> plugins;
  for (const auto& plugin : plugins_of(suite)) {
    check_place(plugin, side, suite);
    const auto path = side.files->methods / plugin;
    if (!side.may_lack_files || std::filesystem::exists(path)) plugins.push_back(path.string());
  }
  try {
    return with_plugins(side.worker, plugins);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", suite, error.what()));
  }
}

void add_fault(SuiteCase& suite_case, const Side& side, const std::string& fault) {
  auto& text = suite_case.unusable;
  text += fmt::format("{}the {} {}", text.empty() ? "" : "; ", side.name, without_copies(fault, {side}));
}

// The i-th of the `count` records that a worker was asked for. If the worker ended before it, the case has failed.
Record record_of(const WorkerAnswer& answer, size_t i, size_t count) {
  Record record;
  if (i < answer.lines.size()) take_line(record, answer.lines[i]);
  else record.set_failed(failure_kind(answer), fault_of(answer, count));
  return record;
}

// The worker's answers to `command`, one record for each case.
std::vector<Record> ask_about(const WorkerProgram& worker, const std::string& command, const std::vector<Case>& cases,
                              const std::vector<std::string>& arguments = {}) {
  constexpr double kDeadlineS = 600;
  auto request = Json::array();
  for (const auto& c : cases) request.push_back(portable_request(c));
  const auto answer = run_worker(worker, command, request, kDeadlineS, {}, arguments);
  std::vector<Record> records;
  for (size_t i = 0; i < cases.size(); ++i) records.push_back(record_of(answer, i, cases.size()));
  return records;
}

// Verifies each case at a size that takes a fraction of a second. If there are methods that are not compiled into the worker, it
// chooses the size itself, because only it knows of which multiples their lengths have to be. The worker of an older base cannot
// do that, but such a base has no such methods.
std::vector<Record> verify_small(const WorkerProgram& worker, std::vector<Case> cases) {
  const bool has_foreign = !worker.plugins.empty() || std::any_of(cases.begin(), cases.end(), [](const Case& c) {
    return !python_file_of(c.method).empty();
  });
  if (has_foreign) return ask_about(worker, "verify", cases, {"--small"});
  for (auto& c : cases) c = c.small(kSmallLength);
  return ask_about(worker, "verify", cases);
}

}  // namespace

std::string without_copies(std::string text, const std::vector<Side>& sides) {
  for (const auto& side : sides) {
    if (!side.files) continue;
    const auto copy = side.files->root.string() + "/";
    for (size_t at = 0; (at = text.find(copy, at)) != std::string::npos;) text.erase(at, copy.size());
  }
  return text;
}

MethodSuite::MethodSuite(SuiteOptions options, std::vector<Side> sides) : GateSuite(std::move(options), std::move(sides)) {
  for (auto& side : sides_) {
    side.worker = with_plugins_of(options_.file, side);
  }
  const auto catalogue = Catalogue::load(sides_.at(1).worker);
  SweepOverrides overrides;
  for (const auto& setting : options_.settings) overrides.add_setting(setting);
  const SweepFile sweep(options_.file, catalogue, overrides);
  for (auto c : sweep.cases()) {
    c.baseline.clear();  // the other side takes turns with the case
    check_place(python_file_of(c.method), sides_[1], options_.file);
    if (c.ranks > 1)
      throw UsageError(fmt::format("{}: ranks = {}, expected 1: the processes of a gate take turns, which several ranks cannot",
                                   options_.file, c.ranks));
    if (options_.instructions) force_avx2(c, catalogue);
    cases_.push_back({.c = c, .sides = std::vector<SuiteCase::OfSide>(sides_.size())});
  }
  name_cases();
  // The worker of an older base may not know how to look for Python files.
  const bool has_python = std::any_of(cases_.begin(), cases_.end(),
                                      [](const auto& suite_case) { return !python_file_of(suite_case.c.method).empty(); });
  for (auto& side : sides_) {
    // Functions of Python files are those of the side's own copy.
    const auto folder = side.files ? side.files->methods : std::filesystem::path(options_.file).parent_path();
    if (has_python) side.worker.methods_folders = {(folder / ".").string(), "."};
    side.environment = ask_environment(side.worker);
  }
}

void MethodSuite::name_cases() {
  std::vector<Case> all;
  for (const auto& suite_case : cases_) all.push_back(suite_case.c);
  const auto names = full_names(all);
  for (size_t i = 0; i < cases_.size(); ++i) cases_[i].name = names[i];
}

void MethodSuite::check() {
  std::vector<bool> supported(cases_.size(), false);
  for (size_t side = 0; side < sides_.size(); ++side) check(side, supported);
  if (std::find(supported.begin(), supported.end(), true) == supported.end())
    throw UsageError(
        fmt::format("{}: no build can run any case; for '{}', {}", options_.file, cases_[0].name, cases_[0].unusable));
  for (size_t i = cases_.size(); i-- > 0;)
    if (!supported[i]) cases_.erase(cases_.begin() + std::ptrdiff_t(i));
}

// Whether the side's copy of a repository has the file of the case's method. If the base lacks it, the case is new.
bool MethodSuite::has_file(size_t side, SuiteCase& suite_case) const {
  const auto file = python_file_of(suite_case.c.method);
  if (!sides_[side].files || file.empty() || std::filesystem::exists(sides_[side].files->methods / file)) return true;
  const auto lacking = fmt::format("the {} has no file {}", sides_[side].name, file);
  if (!sides_[side].may_lack_files)
    throw UsageError(fmt::format("{}: {}, which the method '{}' names", options_.file, lacking, suite_case.c.method));
  suite_case.lacking = lacking;
  return false;
}

// Whether the worker, which gave this plan, has the case's method. If the base's state of a repository lacks it, the case is new.
bool MethodSuite::has_method(size_t side, SuiteCase& suite_case, const Record& plan) const {
  if (!sides_[side].files || !plan.is_refused()) return true;
  const auto reason = without_copies(plan.text("reason"), sides_);
  if (!sides_[side].may_lack_files) throw UsageError(fmt::format("{}: {}", options_.file, reason));
  // A method that exists but is broken is a fault of the base and does not make the case new.
  if (plan.text("failure_kind") == kind::unknown_method)
    suite_case.lacking = fmt::format("in the {}, {}", sides_[side].name, reason);
  return !suite_case.is_new();
}

// Checks every case on one side, and sets `supported` for each case that this side does not skip.
void MethodSuite::check(size_t side, std::vector<bool>& supported) {
  const auto& worker = sides_[side].worker;
  // A build is checked only once, since all sides of a calibration are the same build.
  if (std::any_of(sides_.begin(), sides_.begin() + std::ptrdiff_t(side), [&](const Side& s) { return s.worker == worker; }))
    return;
  if (!sides_[side].unusable.empty()) {
    for (auto& suite_case : cases_) add_fault(suite_case, sides_[side], sides_[side].unusable);
    supported.assign(supported.size(), true);
    return;
  }
  std::vector<size_t> asked;
  std::vector<Case> planned;
  for (size_t i = 0; i < cases_.size(); ++i) {
    if (!has_file(side, cases_[i])) continue;
    asked.push_back(i);
    planned.push_back(case_of(cases_[i], sides_[side]));
  }
  const auto plans = ask_about(worker, "plan", planned);
  note(fmt::format("verifying the {}", sides_[side].name));
  const auto checks = verify_small(worker, planned);
  for (size_t n = 0; n < asked.size(); ++n) {
    auto& suite_case = cases_[asked[n]];
    const auto &plan = plans[n], &verification = checks[n];
    if (!has_method(side, suite_case, plan)) continue;
    if (plan.has("method_label")) suite_case.label = plan.text("method_label");
    supported[asked[n]] = supported[asked[n]] || plan.text("outcome") != outcome::skipped;
    // The processes of all sides run at the same time, so each may use only its share of the memory.
    if (side == 0 && suite_case.c.memory_limit_bytes == 0 && plan.has("memory_limit_bytes"))
      suite_case.c.memory_limit_bytes = plan.get("memory_limit_bytes").get<int64_t>() / int64_t(sides_.size());
    if (plan.has("outcome")) add_fault(suite_case, sides_[side], "cannot run it: " + plan.text("reason"));
    else if (!verification.measured()) add_fault(suite_case, sides_[side], "does not verify: " + verification.text("reason"));
  }
}

void MethodSuite::measure(std::vector<size_t> cases) {
  std::shuffle(cases.begin(), cases.end(), random_);
  for (const auto i : cases)
    if (cases_[i].is_compared()) measure(cases_[i]);
}

void MethodSuite::measure(SuiteCase& suite_case) {
  std::vector<size_t> order(sides_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random_);
  std::vector<CaseOfBuild> processes;
  for (const auto s : order) processes.push_back({sides_[s].worker, case_of(suite_case, sides_[s])});
  auto answered = run_in_turns(processes, random_());
  std::vector<Record> records(sides_.size());
  for (size_t n = 0; n < order.size(); ++n) records[order[n]] = std::move(answered[n]);
  for (size_t s = 0; s < sides_.size(); ++s)
    if (!records[s].measured())
      add_fault(suite_case, sides_[s],
                fmt::format("failed ({}): {}", records[s].text("failure_kind"), records[s].text("reason")));
  if (!suite_case.unusable.empty()) return;
  const auto samples = [&](size_t s) { return records[s].get("time_samples_ms").get<std::vector<double>>(); };
  for (size_t s = 0; s < sides_.size(); ++s) {
    auto& side = suite_case.sides[s];
    side.medians.push_back(records[s].number("time_median_ms"));
    side.log_ratios.push_back(median_log_ratio(samples(0), samples(s)));
    side.peak_extra_bytes.push_back(records[s].number("peak_extra_bytes"));
    side.implementation = records[s].text("implementation");
  }
}

void MethodSuite::measure_one(size_t index) {
  if (cases_.at(index).is_compared()) measure(cases_[index]);
}

void MethodSuite::count_instructions() {
  // callgrind counts inside the function attnbench_counted_calls only, in which the worker makes the calls. The count is read
  // from what it prints, not from its file.
  const std::vector<std::string> valgrind = {"valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                                             "--collect-atstart=no", "--toggle-collect=attnbench_counted_calls"};
  const auto count_on = [&](const Side& side, const SuiteCase& suite_case) {
    auto counted = side.worker;
    counted.launcher.insert(counted.launcher.end(), valgrind.begin(), valgrind.end());
    return run_worker(counted, "count", portable_request(case_of(suite_case, side)), 100 * suite_case.c.deadline_s);
  };
  for (auto& suite_case : cases_) {
    if (!suite_case.is_compared()) continue;
    note(fmt::format("counting {}", suite_case.name));
    // All sides run at the same time, since this does not change their counts.
    std::vector<std::future<WorkerAnswer>> answers;
    for (const auto& side : sides_)
      answers.push_back(std::async(std::launch::async, [&, &side = side] { return count_on(side, suite_case); }));
    for (size_t s = 0; s < sides_.size(); ++s) {
      const auto answer = answers[s].get();
      const auto record = record_of(answer, 0, 1);
      const auto count = collected_instructions(answer.diagnostics);
      if (!record.measured()) {
        add_fault(suite_case, sides_[s], fmt::format("failed ({}): {}", record.text("failure_kind"), record.text("reason")));
      } else if (!count) {
        add_fault(suite_case, sides_[s], "got no count from valgrind: " + answer.diagnostics);
      } else {
        suite_case.sides[s].medians.push_back(*count);
        suite_case.sides[s].implementation = record.text("implementation");
      }
    }
  }
}

void GateSuite::note(const std::string& text) const {
  if (!options_.quiet) print_notice(fmt::format("{}\n", text));
}

}  // namespace attnbench
