#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <random>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/shared_options.h"
#include "harness/gate/builds.h"
#include "harness/gate/gate.h"
#include "harness/gate/gate_report.h"
#include "harness/gate/gate_suite.h"
#include "harness/process/worker_process.h"
#include "harness/records/result_folder.h"
#include "harness/text/errors.h"
#include "harness/text/text_table.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

struct Options {
  SuiteOptions suite;
  std::string base, candidate, waivers, out;
  GatePlan plan;
  double memory_shift = 0.01, instruction_shift = 0.005;
  std::optional<double> inject;  // percent
  int recordings = 200, trials = 4000;
  bool calibrate = false, markdown = false, json = false;

  TableFormat format() const { return markdown ? TableFormat::markdown : TableFormat::text; }
};

std::string text_of(const Json& json, int indent) { return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n"; }

void write_out(const std::string& folder, const std::string& name, const Json& json) {
  if (folder.empty()) return;
  make_folder(folder);
  replace_file(folder, name, text_of(json, 1));
}

// From the instructions of each side, which are the same whenever they are counted.
std::vector<Judgement> judge_instructions(GateSuite& suite, double shift) {
  suite.count_instructions();
  std::vector<Judgement> judgements;
  for (const auto& c : suite.cases()) {
    auto& judgement = judgements.emplace_back();
    if (c.sides[0].medians.empty() || c.sides[1].medians.empty()) continue;
    const double ratio = std::log(c.sides[1].medians[0] / c.sides[0].medians[0]);
    judgement = {{ratio, {ratio, ratio}}, 0, 0, Verdict::pass};
    if (ratio > std::log1p(shift)) judgement.verdict = Verdict::regression;
    if (ratio < -std::log1p(shift)) judgement.verdict = Verdict::improvement;
  }
  return judgements;
}

std::vector<Judgement> judge_times(GateSuite& suite, const GatePlan& plan) {
  Gate gate(suite.cases().size(), plan);
  for (int done = 0; !gate.ended();) {
    const auto open = gate.open();
    for (; done < gate.next_look(); ++done) {
      suite.note(fmt::format("pair {} of {}: {} cases", done + 1, gate.next_look(), open.size()));
      suite.measure(open);
    }
    std::vector<std::vector<double>> seen;
    for (const auto& c : suite.cases()) seen.push_back(c.sides[1].log_ratios);
    gate.look(seen);
    // What broke on the way is measured no more.
    if (std::all_of(suite.cases().begin(), suite.cases().end(), [](const auto& c) { return !c.unusable.empty(); })) break;
  }
  return gate.judgements();
}

GateResult run_gate(const WorkerProgram& own, const Options& options) {
  if (options.base.empty())
    throw UsageError("--base names the build to compare with: a build folder, a program or a git revision");
  const auto candidate = options.candidate.empty() ? own : worker_of(options.candidate);
  GateSuite suite(options.suite, {{"base", worker_of(options.base)}, {"candidate", candidate, options.inject.value_or(0)}});
  suite.check();
  std::vector<std::string> names;
  for (const auto& c : suite.cases()) names.push_back(c.name);
  const auto waivers = read_waivers(options.waivers, names);

  const bool instructions = options.suite.instructions;
  std::vector<Judgement> judgements(suite.cases().size());
  // No speed of what is wrong.
  if (std::all_of(suite.cases().begin(), suite.cases().end(),
                  [&](const auto& c) { return c.unusable.empty() || waivers.contains(c.name); }))
    judgements = instructions ? judge_instructions(suite, options.instruction_shift) : judge_times(suite, options.plan);
  const auto report = report_of(suite.cases(), judgements, waivers, options.memory_shift);
  const auto json = json_of(report, suite, options.plan, instructions);
  write_out(options.out, "gate.json", json);
  fmt::print("{}", options.json ? text_of(json, 2) : text_of(report, suite, instructions, options.format()));
  return report.result;
}

int exit_code_of(GateResult result) {
  switch (result) {
    case GateResult::pass: return exit_code::success;
    case GateResult::regression: return exit_code::failure;
    case GateResult::inconclusive: return exit_code::inconclusive;
    case GateResult::unusable: return exit_code::unusable;
  }
  return exit_code::unusable;
}

double between_quartiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return quantile(values, 0.75) - quantile(values, 0.25);
}

// Three processes of one build take turns, the third slowed down: what the gate would have made of the first against the second
// and against the third.
GateResult calibrate(const WorkerProgram& own, Options options) {
  if (!options.inject) options.inject = 10;
  const auto worker = options.candidate.empty() ? own : worker_of(options.candidate);
  GateSuite suite(options.suite, {{"base", worker}, {"same", worker}, {"slowed", worker, *options.inject}});
  suite.check();
  const auto check_usable = [&] {
    for (const auto& c : suite.cases())
      if (!c.unusable.empty()) throw UsageError(c.name + ": " + c.unusable);
  };
  check_usable();
  std::vector<size_t> every(suite.cases().size());
  std::iota(every.begin(), every.end(), size_t{0});
  for (int n = 0; n < options.recordings; ++n) {
    suite.note(fmt::format("recording {} of {}", n + 1, options.recordings));
    suite.measure(every);
  }
  check_usable();
  std::vector<std::vector<double>> same, slowed;
  for (const auto& c : suite.cases()) {
    same.push_back(c.sides[1].log_ratios);
    slowed.push_back(c.sides[2].log_ratios);
  }
  const auto alarms = resample_gate(same, options.plan, options.trials, options.suite.seed);
  const auto caught = resample_gate(slowed, options.plan, options.trials, options.suite.seed + 1);
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
  for (size_t i = 0; i < suite.cases().size(); ++i) {
    const auto& sides = suite.cases()[i].sides;
    const double middle = median(sides[0].medians);
    table.add_row({suite.cases()[i].name, format_ms(middle), share(between_quartiles(sides[0].medians) / middle),
                   share(between_quartiles(same[i])), share(alarms.regression[i]), share(alarms.inconclusive[i]),
                   share(caught.regression[i]), share(caught.inconclusive[i])});
    json["cases"].push_back({{"name", suite.cases()[i].name},
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
  if (options.json) fmt::print("{}", text_of(json, 2));
  else
    fmt::print(
        "{}\nfalse alarms a suite: {}; of {} resampled suites of equal builds\nequal builds: {:.1f} pairs a case; slowed by {:g} "
        "%: "
        "{:.1f}\n",
        table.render(options.format()), share(alarms.any_regression), options.trials, alarms.mean_pairs, *options.inject,
        caught.mean_pairs);
  return GateResult::pass;
}

}  // namespace

Run add_gate_command(CLI::App& command) {
  const auto options = std::make_shared<Options>();
  options->suite.seed = std::random_device{}();
  command.add_option("file", options->suite.file, "sweep file: the suite")->required();
  command.add_option("--base", options->base, "build to compare with: a build folder, a program in one, or a git revision");
  command.add_option("--candidate", options->candidate, "likewise, the build that may be slower; by default this one");
  command.add_option("--waivers", options->waivers, "file of cases that may fail, with reasons");
  command.add_option("--set", options->suite.settings, "an axis or a setting instead of the file's")->allow_extra_args(false);
  command.add_option("--looks", options->plan.looks, "pairs of processes, one a side, after which verdicts are looked for")
      ->delimiter(',');
  add_criteria_options(command, options->plan.criteria);
  command.add_option("--memory-shift", options->memory_shift, "a smaller growth of memory is none")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--instructions", options->suite.instructions,
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
  command.add_option("--seed", options->suite.seed, "of the order of runs");
  command.add_flag("--markdown", options->markdown, "the table as Markdown");
  command.add_flag("--json", options->json, "as JSON");
  command.add_flag("-q,--quiet", options->suite.quiet, "no progress");
  return [options](const WorkerProgram& own) {
    return exit_code_of(options->calibrate ? calibrate(own, *options) : run_gate(own, *options));
  };
}

}  // namespace attnbench
