#include <fmt/format.h>

#include <memory>
#include <optional>
#include <random>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/shared_options.h"
#include "harness/gate/builds.h"
#include "harness/gate/calibration.h"
#include "harness/gate/gate_report.h"
#include "harness/gate/gate_run.h"
#include "harness/records/result_folder.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

struct Options {
  SuiteOptions suite;
  GateOptions gate;
  CalibrationOptions calibration;
  std::string base, candidate, out;
  std::optional<double> inject;  // percent
  bool calibrate = false, markdown = false, json = false;

  TableFormat format() const { return markdown ? TableFormat::markdown : TableFormat::text; }
};

int exit_code_of(GateResult result) {
  switch (result) {
    case GateResult::pass: return exit_code::success;
    case GateResult::regression: return exit_code::failure;
    case GateResult::inconclusive: return exit_code::inconclusive;
    case GateResult::unusable: return exit_code::unusable;
  }
  return exit_code::unusable;
}

std::string text_of(const Json& json, int indent) { return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n"; }

void write_out(const std::string& folder, const std::string& name, const Json& json) {
  if (folder.empty()) return;
  make_folder(folder);
  replace_file(folder, name, text_of(json, 1));
}

int run_gate(const WorkerProgram& own, const Options& options) {
  if (options.base.empty())
    throw UsageError("--base names the build to compare with: a build folder, a program or a git revision");
  const auto candidate = options.candidate.empty() ? own : worker_of(options.candidate);
  GateSuite suite(options.suite, {{"base", worker_of(options.base)}, {"candidate", candidate, options.inject.value_or(0)}});
  const auto report = run_gate(suite, options.gate);
  const auto json = json_of(report, suite, options.gate.plan);
  write_out(options.out, "gate.json", json);
  fmt::print("{}", options.json ? text_of(json, 2) : text_of(report, suite, options.format()));
  return exit_code_of(report.result);
}

int run_calibration(const WorkerProgram& own, const Options& options) {
  auto calibration_options = options.calibration;
  if (options.inject) calibration_options.slowdown_percent = *options.inject;
  const auto build = options.candidate.empty() ? own : worker_of(options.candidate);
  Calibration calibration;
  try {
    calibration = calibrate(build, options.suite, options.gate.plan, calibration_options);
  } catch (const UnusableBuild& error) {
    fmt::print(stderr, "attnbench: {}\n", error.what());
    return exit_code::unusable;
  }
  const auto json = json_of(calibration);
  write_out(options.out, "calibration.json", json);
  if (options.json) fmt::print("{}", text_of(json, 2));
  else fmt::print("{}\n{}", table_of(calibration).render(options.format()), summary_of(calibration));
  return exit_code::success;
}

}  // namespace

Run add_gate_command(CLI::App& command) {
  const auto options = std::make_shared<Options>();
  options->suite.seed = std::random_device{}();
  command.add_option("file", options->suite.file, "sweep file whose cases are the suite")->required();
  command.add_option("--base", options->base, "build to compare with: a build folder, a program in one, or a git revision");
  command.add_option("--candidate", options->candidate, "build that may be slower, named in the same way; by default this one");
  command.add_option("--waivers", options->gate.waivers, "file of cases that may fail, with reasons");
  command.add_option("--set", options->suite.settings, "an axis or a setting in place of the file's")->allow_extra_args(false);
  command.add_option("--looks", options->gate.plan.looks, "numbers of pairs of processes after which the cases are judged")
      ->delimiter(',');
  add_criteria_options(command, options->gate.plan.criteria);
  command.add_option("--memory-shift", options->gate.memory_shift, "a smaller growth of the memory is no regression")
      ->check(CLI::NonNegativeNumber);
  command.add_flag("--instructions", options->suite.instructions,
                   "count instructions with valgrind's callgrind instead of measuring times");
  command
      .add_option("--instruction-shift", options->gate.instruction_shift,
                  "a smaller growth of the number of instructions is no regression")
      ->check(CLI::NonNegativeNumber);
  auto* const calibrate_flag =
      command.add_flag("--calibrate", options->calibrate, "measure this build against itself and report how often the gate errs");
  command.add_option("--recordings", options->calibration.recordings, "with --calibrate: processes for each case and side")
      ->needs(calibrate_flag);
  command.add_option("--trials", options->calibration.trials, "with --calibrate: number of suites that are resampled")
      ->needs(calibrate_flag);
  command
      .add_option("--inject", options->inject,
                  "slow the candidate down by this many percent, to see that the gate finds it; with --calibrate 10 by default")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--out", options->out, "folder for gate.json or calibration.json, which hold every measurement and verdict");
  command.add_option("--seed", options->suite.seed, "of the order of runs");
  command.add_flag("--markdown", options->markdown, "the table as Markdown");
  command.add_flag("--json", options->json, "as JSON");
  command.add_flag("-q,--quiet", options->suite.quiet, "no progress");
  return [options](const WorkerProgram& own) {
    return options->calibrate ? run_calibration(own, *options) : run_gate(own, *options);
  };
}

}  // namespace attnbench
