#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>

#include "harness/driver/builds.h"
#include "harness/driver/case_runner.h"
#include "harness/driver/catalogue.h"
#include "harness/driver/commands.h"
#include "harness/driver/errors.h"
#include "harness/driver/gate.h"
#include "harness/driver/gate_suite.h"
#include "harness/driver/json_numbers.h"
#include "harness/driver/shared_options.h"
#include "harness/driver/sweep_file.h"
#include "harness/driver/text_table.h"
#include "harness/driver/units.h"
#include "harness/driver/worker_process.h"

namespace attnbench {
namespace {

struct Options {
  std::string file, base, candidate, waivers, out;
  std::vector<std::string> settings;
  GatePlan plan;
  double memory_shift = 0.01, instruction_shift = 0.005;
  std::optional<double> inject;  // percent
  int recordings = 200, trials = 4000;
  bool calibrate = false, instructions = false, markdown = false, json = false, quiet = false;
  uint64_t seed = 0;
};

class Suite {
 public:
  Suite(const Options& options, std::vector<Side> sides) : options_(options), sides_(std::move(sides)), random_(options.seed) {
    set_worker_path(sides_[1].worker);
    const auto catalogue = Catalogue::load();
    SweepOverrides overrides;
    for (const auto& setting : options.settings) overrides.add_setting(setting);
    const SweepFile sweep(options.file, catalogue, overrides);
    for (auto c : sweep.cases()) {
      if (options.instructions) force_avx2(c, catalogue);
      cases.push_back({c, case_name(c), "", std::vector<SuiteCase::OfSide>(sides_.size())});
    }
    for (auto& side : sides_) {
      set_worker_path(side.worker);
      side.environment = Record::parse(ask_worker("environment", nullptr, 1)[0]);
    }
  }

  // What cannot be compared says why.
  void check() {
    std::vector<std::vector<bool>> runs(sides_.size());
    for (size_t s = 0; s < sides_.size(); ++s) {
      const auto same = std::find_if(sides_.begin(), sides_.begin() + std::ptrdiff_t(s),
                                     [&](const Side& side) { return side.worker == sides_[s].worker; });
      if (size_t(same - sides_.begin()) < s) {
        runs[s] = runs[size_t(same - sides_.begin())];
        continue;
      }
      set_worker_path(sides_[s].worker);
      auto request = Json::array(), small = Json::array();
      for (const auto& c : cases) {
        request.push_back(portable_request(c.c));
        auto reduced = c.c;
        reduced.batch = std::min<int64_t>(reduced.batch, 2);
        reduced.heads = std::min<int64_t>(reduced.heads, 2);
        reduced.query_len = std::min<int64_t>(reduced.query_len, 300);
        reduced.key_len = std::min<int64_t>(reduced.key_len, 300);
        small.push_back(portable_request(reduced));
      }
      const auto plans = ask_worker("plan", request, cases.size());
      note(fmt::format("verifying the {}", sides_[s].name));
      const auto checks = ask_worker("verify", small, cases.size());
      for (size_t i = 0; i < cases.size(); ++i) {
        const auto plan = Record::parse(plans[i]), check = Record::parse(checks[i]);
        runs[s].push_back(!plan.has("outcome"));
        // All sides are there at once.
        if (s == 0 && cases[i].c.memory_limit_bytes == 0 && plan.has("memory_limit_bytes"))
          cases[i].c.memory_limit_bytes = plan.get("memory_limit_bytes").get<int64_t>() / int64_t(sides_.size());
        if (plan.has("outcome")) add_fault(i, s, plan.text("reason"));
        else if (!check.measured()) add_fault(i, s, "does not verify: " + check.text("reason"));
      }
    }
    // What neither side can do is no case of theirs.
    for (size_t i = cases.size(); i-- > 0;)
      if (std::none_of(runs.begin(), runs.end(), [&](const auto& side) { return side[i]; }))
        cases.erase(cases.begin() + std::ptrdiff_t(i));
    if (cases.empty()) throw UsageError(fmt::format("{}: neither build can run any case", options_.file));
  }

  bool all_usable() const {
    return std::all_of(cases.begin(), cases.end(), [](const SuiteCase& c) { return c.unusable.empty(); });
  }

  // One process a side of each of these cases, in random order.
  void round(std::vector<size_t> open) {
    std::shuffle(open.begin(), open.end(), random_);
    for (const auto i : open)
      if (cases[i].unusable.empty()) measure(i);
  }

  void measure(size_t i) {
    std::vector<size_t> order(sides_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random_);
    std::vector<CaseOfBuild> processes;
    for (const auto s : order) processes.push_back({sides_[s].worker, case_of(i, s)});
    auto answered = run_in_turns(processes, random_());
    std::vector<Record> records(sides_.size());
    for (size_t n = 0; n < order.size(); ++n) records[order[n]] = std::move(answered[n]);
    for (size_t s = 0; s < sides_.size(); ++s)
      if (!records[s].measured()) add_fault(i, s, records[s].text("failure_kind") + ": " + records[s].text("reason"));
    if (!cases[i].unusable.empty()) return;
    const auto samples = [&](size_t s) { return records[s].get("time_samples_ms").get<std::vector<double>>(); };
    for (size_t s = 0; s < sides_.size(); ++s) {
      auto& mine = cases[i].sides[s];
      mine.medians.push_back(records[s].number("time_median_ms"));
      mine.log_ratios.push_back(median_log_ratio(samples(0), samples(s)));
      mine.peak_extra_bytes.push_back(records[s].number("peak_extra_bytes"));
      mine.implementation = records[s].text("implementation");
    }
  }

  void count_instructions() {
    char path[] = "/tmp/attnbench-callgrind-XXXXXX";
    const int file = mkstemp(path);
    if (file >= 0) close(file);
    set_worker_launcher({"valgrind", "--tool=callgrind", fmt::format("--callgrind-out-file={}", path), "--collect-atstart=no",
                         "--toggle-collect=attnbench_counted_calls"});
    for (size_t i = 0; i < cases.size(); ++i)
      for (size_t s = 0; s < sides_.size(); ++s) {
        if (!cases[i].unusable.empty()) continue;
        note(fmt::format("counting {} on the {}", cases[i].name, sides_[s].name));
        set_worker_path(sides_[s].worker);
        const auto answer = run_worker("count", portable_request(case_of(i, s)), 100 * cases[i].c.deadline_s);
        const auto at = answer.diagnostics.rfind("Collected : ");
        const bool counted = answer.lines.size() == 1 && answer.lines[0].value("outcome", "") == outcome::measured;
        if (!counted || at == std::string::npos)
          add_fault(i, s,
                    counted                ? "valgrind gave no count: " + answer.diagnostics
                    : answer.lines.empty() ? "no answer: " + answer.diagnostics
                                           : answer.lines[0].value("reason", ""));
        else {
          cases[i].sides[s].medians.push_back(std::stod(answer.diagnostics.substr(at + 12)));
          cases[i].sides[s].implementation = answer.lines[0].value("implementation", "");
        }
      }
    set_worker_launcher({});
    unlink(path);
  }

  void note(const std::string& text) const {
    if (!options_.quiet) fmt::print(stderr, "{}\n", text);
  }
  const std::vector<Side>& sides() const { return sides_; }

  std::vector<SuiteCase> cases;

 private:
  // As a side is asked for it.
  Case case_of(size_t i, size_t s) const {
    auto c = cases[i].c;
    c.injected_slowdown_percent = sides_[s].injected_slowdown_percent;
    return c;
  }
  void add_fault(size_t i, size_t s, const std::string& fault) {
    auto& text = cases[i].unusable;
    text += fmt::format("{}the {} {}", text.empty() ? "" : "; ", sides_[s].name, fault);
  }
  // callgrind knows no AVX-512: where a method has kernels, both sides take those that it can count.
  static void force_avx2(Case& c, const Catalogue& catalogue) {
    c.threads = 1;
    const auto name = c.method.substr(0, c.method.find(':'));
    if (c.method.find("kernel=") != std::string::npos) return;
    for (const auto& method : catalogue.methods())
      if (method.at("name") == name)
        for (const auto& option : method.at("options"))
          if (option.at("name") == "kernel") c.method += (name == c.method ? ":" : ",") + std::string("kernel=avx2");
  }

  const Options& options_;
  std::vector<Side> sides_;
  std::mt19937_64 random_;
};

// ------------------------------------------------------------ what is said

std::string percent(double log_ratio) {
  if (!std::isfinite(log_ratio)) return "–";
  return fmt::format("{:+.1f} %", 100 * std::expm1(log_ratio));
}
double between_quartiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.75) - quantile(values, 0.25);
}
double median_or_nan(const std::vector<double>& values) { return values.empty() ? std::nan("") : median(values); }

const char* result_name(GateResult result) {
  switch (result) {
    case GateResult::pass: return "pass";
    case GateResult::regression: return "regression";
    case GateResult::unusable: return "unusable";
    case GateResult::inconclusive: return "inconclusive";
  }
  return "";
}

Json json_of(const Suite& suite, const GateReport& report, const Options& options) {
  Json json = {
      {"result", result_name(report.result)},   {"measure", options.instructions ? "instructions on AVX2 kernels" : "time"},
      {"alpha", options.plan.criteria.alpha},   {"min_shift", options.plan.criteria.min_shift},
      {"margin", options.plan.criteria.margin}, {"looks", options.plan.looks}};
  for (const auto& side : suite.sides())
    json[side.name] = {{"revision", side.environment.get("revision")},
                       {"dirty", side.environment.get("dirty")},
                       {"build", side.environment.get("build")},
                       {"cpu_model", side.environment.get("cpu_model")},
                       {"processors", side.environment.get("processors")}};
  json["cases"] = Json::array();
  for (size_t i = 0; i < suite.cases.size(); ++i) {
    const auto& c = suite.cases[i];
    const auto& line = report.lines[i];
    json["cases"].push_back({{"name", c.name},
                             {"verdict", line.verdict},
                             {"waived", line.waived.empty() ? Json() : Json(line.waived)},
                             {"log_ratio", finite_or_null(line.judgement.ratio.estimate)},
                             {"interval", json_of(line.judgement.ratio.interval)},
                             {"adjusted_p", line.judgement.adjusted_p},
                             {"base", c.sides[0].medians},
                             {"candidate", c.sides[1].medians},
                             {"log_ratios", c.sides[1].log_ratios},
                             {"base_peak_extra_bytes", c.sides[0].peak_extra_bytes},
                             {"candidate_peak_extra_bytes", c.sides[1].peak_extra_bytes},
                             {"implementation", c.sides[1].implementation}});
  }
  return json;
}

void print_report(const Suite& suite, const GateReport& report, const Options& options) {
  if (options.json)
    return fmt::print("{}\n", json_of(suite, report, options).dump(2, ' ', false, Json::error_handler_t::replace));
  TextTable table;
  table.add_column("case");
  for (const auto* header : {"base", "candidate", "change", "95 %", "p (Holm)", "processes"})
    table.add_column(header, TextTable::Align::right);
  table.add_column("verdict");
  const auto value = [&](double x) { return options.instructions ? fmt::format("{:.4g}", x) : format_ms(x); };
  for (size_t i = 0; i < suite.cases.size(); ++i) {
    const auto& c = suite.cases[i];
    const auto& line = report.lines[i];
    const auto& [estimate, interval] = line.judgement.ratio;
    const auto &base = c.sides[0].medians, &candidate = c.sides[1].medians;
    const bool judged = !base.empty() && !candidate.empty();
    table.add_row({c.name, value(median_or_nan(base)), value(median_or_nan(candidate)), judged ? percent(estimate) : "–",
                   judged && !options.instructions ? percent(interval.low) + " … " + percent(interval.high) : "–",
                   judged && !options.instructions ? fmt::format("{:.2g}", line.judgement.adjusted_p) : "–",
                   std::to_string(line.processes), line.verdict + (line.waived.empty() ? "" : " (waived: " + line.waived + ")")});
  }
  fmt::print("{}\n", table.render(options.markdown ? TableFormat::markdown : TableFormat::text));
  if (options.instructions)
    fmt::print("instructions of {} calls on one thread, by callgrind, on the AVX2 kernels\n", kCountedCalls);
  fmt::print("gate: {}\n", result_name(report.result));
}

void write_out(const std::string& folder, const std::string& name, const Json& json) {
  if (folder.empty()) return;
  std::filesystem::create_directories(folder);
  const auto path = (std::filesystem::path(folder) / name).string();
  std::ofstream file(path);
  file << json.dump(1, ' ', false, Json::error_handler_t::replace) << "\n";
  file.close();
  if (!file) throw UsageError(path + ": cannot write");
}

// ------------------------------------------------------------ the ways to run

GateResult run_gate(const Options& options) {
  if (options.base.empty())
    throw UsageError("--base names the build to compare with: a build folder, a program or a git revision");
  const auto own = worker_path();
  const auto candidate = options.candidate.empty() ? own : worker_of(options.candidate);
  Suite suite(options, {{"base", worker_of(options.base)}, {"candidate", candidate, options.inject.value_or(0)}});
  suite.check();
  std::vector<std::string> names;
  for (const auto& c : suite.cases) names.push_back(c.name);
  const auto waivers = read_waivers(options.waivers, names);

  std::vector<Judgement> judgements(suite.cases.size());
  const auto waived = [&](const SuiteCase& c) { return waivers.contains(c.name); };
  // No speed of what is wrong.
  if (std::all_of(suite.cases.begin(), suite.cases.end(), [&](const auto& c) { return c.unusable.empty() || waived(c); })) {
    if (options.instructions) {
      suite.count_instructions();
      for (size_t i = 0; i < suite.cases.size(); ++i) {
        const auto& c = suite.cases[i];
        if (c.sides[0].medians.empty() || c.sides[1].medians.empty()) continue;
        const double ratio = std::log(c.sides[1].medians[0] / c.sides[0].medians[0]);
        judgements[i] = {{ratio, {ratio, ratio}}, 0, 0, Verdict::pass};
        if (ratio > std::log1p(options.instruction_shift)) judgements[i].verdict = Verdict::regression;
        if (ratio < -std::log1p(options.instruction_shift)) judgements[i].verdict = Verdict::improvement;
      }
    } else {
      Gate gate(suite.cases.size(), options.plan);
      for (int done = 0; !gate.ended();) {
        auto open = gate.open();
        for (; done < gate.next_look(); ++done) {
          suite.note(fmt::format("pair {} of {}: {} cases", done + 1, gate.next_look(), open.size()));
          suite.round(open);
        }
        std::vector<std::vector<double>> seen;
        for (const auto& c : suite.cases) seen.push_back(c.sides[1].log_ratios);
        gate.look(seen);
        // What broke on the way is measured no more.
        if (std::all_of(suite.cases.begin(), suite.cases.end(), [](const auto& c) { return !c.unusable.empty(); })) break;
      }
      judgements = gate.judgements();
    }
  }
  const auto report = report_of(suite.cases, judgements, waivers, options.memory_shift);
  write_out(options.out, "gate.json", json_of(suite, report, options));
  print_report(suite, report, options);
  return report.result;
}

// Three processes of one build take turns, the third slowed down: what the gate would have made of the first against the second
// and against the third.
GateResult calibrate(Options options) {
  if (!options.inject) options.inject = 10;
  const auto worker = options.candidate.empty() ? worker_path() : worker_of(options.candidate);
  Suite suite(options, {{"base", worker}, {"same", worker}, {"slowed", worker, *options.inject}});
  suite.check();
  if (!suite.all_usable())
    for (const auto& c : suite.cases)
      if (!c.unusable.empty()) throw UsageError(c.name + ": " + c.unusable);
  std::vector<size_t> every(suite.cases.size());
  std::iota(every.begin(), every.end(), size_t{0});
  for (int n = 0; n < options.recordings; ++n) {
    suite.note(fmt::format("recording {} of {}", n + 1, options.recordings));
    suite.round(every);
  }
  std::vector<std::vector<double>> same, slowed;
  for (const auto& c : suite.cases) {
    if (!c.unusable.empty()) throw UsageError(c.name + ": " + c.unusable);
    same.push_back(c.sides[1].log_ratios);
    slowed.push_back(c.sides[2].log_ratios);
  }
  const auto alarms = resample_gate(same, options.plan, options.trials, options.seed);
  const auto caught = resample_gate(slowed, options.plan, options.trials, options.seed + 1);
  Json json = {{"recordings", options.recordings},
               {"trials", options.trials},
               {"injected_slowdown_percent", *options.inject},
               {"alpha", options.plan.criteria.alpha},
               {"min_shift", options.plan.criteria.min_shift},
               {"margin", options.plan.criteria.margin},
               {"looks", options.plan.looks},
               {"false_alarms_a_suite", alarms.any_regression},
               {"inconclusive_suites_of_equal_builds", alarms.any_inconclusive},
               {"mean_pairs_of_equal_builds", alarms.mean_pairs},
               {"mean_pairs_of_slowed_builds", caught.mean_pairs},
               {"environment",
                {{"revision", suite.sides()[0].environment.get("revision")},
                 {"cpu_model", suite.sides()[0].environment.get("cpu_model")},
                 {"processors", suite.sides()[0].environment.get("processors")}}},
               {"cases", Json::array()}};
  TextTable table;
  table.add_column("case");
  for (const auto* header :
       {"median", "spread", "spread of pairs", "false alarms", "undecided", "slowdown caught", "undecided then"})
    table.add_column(header, TextTable::Align::right);
  const auto share = [](double x) { return fmt::format("{:.2f} %", 100 * x); };
  for (size_t i = 0; i < suite.cases.size(); ++i) {
    const auto& sides = suite.cases[i].sides;
    const double middle = median(sides[0].medians);
    table.add_row({suite.cases[i].name, format_ms(middle), share(between_quartiles(sides[0].medians) / middle),
                   share(between_quartiles(same[i])), share(alarms.regression[i]), share(alarms.inconclusive[i]),
                   share(caught.regression[i]), share(caught.inconclusive[i])});
    json["cases"].push_back({{"name", suite.cases[i].name},
                             {"false_alarms", alarms.regression[i]},
                             {"inconclusive", alarms.inconclusive[i]},
                             {"caught", caught.regression[i]},
                             {"inconclusive_when_slowed", caught.inconclusive[i]},
                             {"process_medians_ms", sides[0].medians},
                             {"slowed_process_medians_ms", sides[2].medians},
                             {"log_ratios", same[i]},
                             {"slowed_log_ratios", slowed[i]}});
  }
  write_out(options.out, "calibration.json", json);
  if (options.json) fmt::print("{}\n", json.dump(2));
  else
    fmt::print(
        "{}\nfalse alarms a suite: {}; of {} resampled suites of equal builds\nequal builds: {:.1f} pairs a case; slowed by {:g} "
        "%: "
        "{:.1f}\n",
        table.render(options.markdown ? TableFormat::markdown : TableFormat::text), share(alarms.any_regression), options.trials,
        alarms.mean_pairs, *options.inject, caught.mean_pairs);
  return GateResult::pass;
}

}  // namespace

Run add_gate_command(CLI::App& command) {
  const auto options = std::make_shared<Options>();
  options->seed = std::random_device{}();
  command.add_option("file", options->file, "sweep file: the suite")->required();
  command.add_option("--base", options->base, "build to compare with: a build folder, a program in one, or a git revision");
  command.add_option("--candidate", options->candidate, "likewise, the build that may be slower; by default this one");
  command.add_option("--waivers", options->waivers, "file of cases that may fail, with reasons");
  command.add_option("--set", options->settings, "an axis or a setting instead of the file's")->allow_extra_args(false);
  command.add_option("--looks", options->plan.looks, "pairs of processes, one a side, after which verdicts are looked for")
      ->delimiter(',');
  add_criteria_options(command, options->plan.criteria);
  command.add_option("--memory-shift", options->memory_shift, "a smaller growth of memory is none")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--instructions", options->instructions,
                   "count instructions with valgrind's callgrind instead of taking time");
  command.add_option("--instruction-shift", options->instruction_shift, "a smaller growth of their number is none")
      ->check(CLI::NonNegativeNumber);
  auto* const calibrate_flag =
      command.add_flag("--calibrate", options->calibrate, "measure this build against itself, and say how often the gate errs");
  command.add_option("--recordings", options->recordings, "with --calibrate: processes a case and side")->needs(calibrate_flag);
  command.add_option("--trials", options->trials, "with --calibrate: suites resampled from them")->needs(calibrate_flag);
  command
      .add_option("--inject", options->inject,
                  "slows the candidate down by so many percent, to see that it is caught; with --calibrate by default 10")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--out", options->out, "folder for gate.json or calibration.json: every median, and the verdicts");
  command.add_option("--seed", options->seed, "of the order of runs");
  command.add_flag("--markdown", options->markdown, "the table as Markdown");
  command.add_flag("--json", options->json, "as JSON");
  command.add_flag("-q,--quiet", options->quiet, "no progress");
  return [options] { return int(options->calibrate ? calibrate(*options) : run_gate(*options)); };
}

}  // namespace attnbench
