#include "harness/gate/gate_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>

#include "attn/method_name.h"
#include "harness/statistics/statistics.h"
#include "harness/sweep/case_runner.h"
#include "harness/sweep/sweep_file.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"

namespace attnbench {
namespace {

// The name of a case, such as "linear forward N=4096 causal": method, protocol, length, and every other axis that does not have
// its default. The number of threads is left out, because its default depends on the machine.
std::string case_name(const Case& c) {
  auto name = fmt::format("{} {} N={}", c.method, c.protocol, c.query_len);
  const auto left_out = {"method", "protocol", "query_len", "threads"};
  for (const auto& field : fields()) {
    const bool left = std::find(left_out.begin(), left_out.end(), field.name) != left_out.end();
    if (field.role != FieldRole::axis || left || is_default(c, field)) continue;
    const auto value = get(c, field);
    if (value.is_boolean()) name += fmt::format(" {}{}", value.get<bool>() ? "" : "not ", field.name);
    else name += fmt::format(" {}={}", field.name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  return name;
}

// The median of log(b/a) over the turns, where a and b are the samples of two processes that took turns.
double median_log_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) ratios.push_back(std::log(b[i] / a[i]));
  return median(std::move(ratios));
}

// Sets one thread and, if the method has the option `kernel`, its AVX2 kernels, because callgrind does not support AVX-512.
void force_avx2(Case& c, const Catalogue& catalogue) {
  c.threads = 1;
  const auto name = attn::method_name(c.method);
  if (c.method.find("kernel=") != std::string::npos) return;
  for (const auto& method : catalogue.methods())
    if (method.at("name") == name)
      for (const auto& option : method.at("options"))
        if (option.at("name") == "kernel") c.method += name == c.method ? ":kernel=avx2" : ",kernel=avx2";
}

// The case at a size that is verified within a fraction of a second.
Case reduced(Case c) {
  c.batch = std::min<int64_t>(c.batch, 2);
  c.heads = std::min<int64_t>(c.heads, 2);
  c.query_len = std::min<int64_t>(c.query_len, 300);
  c.key_len = std::min<int64_t>(c.key_len, 300);
  return c;
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

// The case as this side measures it.
Case case_of(const SuiteCase& suite_case, const Side& side) {
  auto c = suite_case.c;
  c.injected_slowdown_percent = side.injected_slowdown_percent;
  return c;
}

void add_fault(SuiteCase& suite_case, const Side& side, const std::string& fault) {
  auto& text = suite_case.unusable;
  text += fmt::format("{}the {} {}", text.empty() ? "" : "; ", side.name, fault);
}

// The i-th of the `count` records that a worker was asked for. If the worker ended before it, the case has failed.
Record record_of(const WorkerAnswer& answer, size_t i, size_t count) {
  Record record;
  if (i < answer.lines.size()) take_line(record, answer.lines[i]);
  else record.set_failed(failure_kind(answer), fault_of(answer, count));
  return record;
}

// The worker's answers to `command`, one record for each case.
std::vector<Record> ask_about(const WorkerProgram& worker, const std::string& command, const std::vector<Case>& cases) {
  constexpr double kDeadlineS = 600;
  auto request = Json::array();
  for (const auto& c : cases) request.push_back(portable_request(c));
  const auto answer = run_worker(worker, command, request, kDeadlineS);
  std::vector<Record> records;
  for (size_t i = 0; i < cases.size(); ++i) records.push_back(record_of(answer, i, cases.size()));
  return records;
}

}  // namespace

GateSuite::GateSuite(SuiteOptions options, std::vector<Side> sides)
    : options_(std::move(options)), sides_(std::move(sides)), random_(options_.seed) {
  for (auto& side : sides_) side.worker = with_plugins_of(options_.file, side.worker);
  const auto catalogue = Catalogue::load(sides_.at(1).worker);
  SweepOverrides overrides;
  for (const auto& setting : options_.settings) overrides.add_setting(setting);
  const SweepFile sweep(options_.file, catalogue, overrides);
  for (auto c : sweep.cases()) {
    c.baseline.clear();  // the other build takes turns with the case
    if (options_.instructions) force_avx2(c, catalogue);
    cases_.push_back({c, case_name(c), "", std::vector<SuiteCase::OfSide>(sides_.size())});
  }
  for (auto& side : sides_) side.environment = ask_environment(side.worker);
}

void GateSuite::check() {
  std::vector<bool> supported(cases_.size(), false);
  for (size_t side = 0; side < sides_.size(); ++side) check(side, supported);
  if (std::find(supported.begin(), supported.end(), true) == supported.end())
    throw UsageError(
        fmt::format("{}: no build can run any case; for '{}', {}", options_.file, cases_[0].name, cases_[0].unusable));
  for (size_t i = cases_.size(); i-- > 0;)
    if (!supported[i]) cases_.erase(cases_.begin() + std::ptrdiff_t(i));
}

// Checks every case on one side, and sets `supported` for each case that this side does not skip.
void GateSuite::check(size_t side, std::vector<bool>& supported) {
  const auto& worker = sides_[side].worker;
  // A build is checked once, although all sides of a calibration are the same build.
  if (std::any_of(sides_.begin(), sides_.begin() + std::ptrdiff_t(side), [&](const Side& s) { return s.worker == worker; }))
    return;
  std::vector<Case> planned, verified;
  for (const auto& suite_case : cases_) {
    planned.push_back(suite_case.c);
    verified.push_back(reduced(suite_case.c));
  }
  const auto plans = ask_about(worker, "plan", planned);
  note(fmt::format("verifying the {}", sides_[side].name));
  const auto checks = ask_about(worker, "verify", verified);
  for (size_t i = 0; i < cases_.size(); ++i) {
    auto& suite_case = cases_[i];
    supported[i] = supported[i] || plans[i].text("outcome") != outcome::skipped;
    // The processes of all sides run at the same time, so each may use its share of the memory.
    if (side == 0 && suite_case.c.memory_limit_bytes == 0 && plans[i].has("memory_limit_bytes"))
      suite_case.c.memory_limit_bytes = plans[i].get("memory_limit_bytes").get<int64_t>() / int64_t(sides_.size());
    if (plans[i].has("outcome")) add_fault(suite_case, sides_[side], "cannot run it: " + plans[i].text("reason"));
    else if (!checks[i].measured()) add_fault(suite_case, sides_[side], "does not verify: " + checks[i].text("reason"));
  }
}

void GateSuite::measure(std::vector<size_t> cases) {
  std::shuffle(cases.begin(), cases.end(), random_);
  for (const auto i : cases)
    if (cases_[i].unusable.empty()) measure(cases_[i]);
}

void GateSuite::measure(SuiteCase& suite_case) {
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

void GateSuite::count_instructions() {
  // callgrind counts inside the function attnbench_counted_calls only, in which the worker makes the calls. The count is read
  // from what it prints, not from its file.
  const std::vector<std::string> valgrind = {"valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                                             "--collect-atstart=no", "--toggle-collect=attnbench_counted_calls"};
  for (auto& suite_case : cases_)
    for (size_t s = 0; s < sides_.size(); ++s) {
      if (!suite_case.unusable.empty()) continue;
      note(fmt::format("counting {} on the {}", suite_case.name, sides_[s].name));
      auto counted = sides_[s].worker;
      counted.launcher = valgrind;
      const auto answer =
          run_worker(counted, "count", portable_request(case_of(suite_case, sides_[s])), 100 * suite_case.c.deadline_s);
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

void GateSuite::note(const std::string& text) const {
  if (!options_.quiet) print_notice(fmt::format("{}\n", text));
}

}  // namespace attnbench
