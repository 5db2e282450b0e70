// `attnbench gate`: compares two builds, or a working tree and a revision of any repository, and prints the verdicts.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/plot_scripts.h"
#include "harness/cli/shared_options.h"
#include "harness/cli/terminal.h"
#include "harness/files/known_files.h"
#include "harness/files/replace_file.h"
#include "harness/gate/builds.h"
#include "harness/gate/calibration.h"
#include "harness/gate/commands/command_suite.h"
#include "harness/gate/gate_comment.h"
#include "harness/gate/gate_report.h"
#include "harness/gate/gate_run.h"
#include "harness/gate/repository_sides.h"
#include "harness/records/folder_lock.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"

namespace attnbench {
namespace {

struct GateCommandOptions {
  SuiteOptions suite;
  GateOptions gate;
  int recordings = 200, trials = 4000;
  BenchmarkCommand command;
  std::string base, candidate, root, prepare, comment, out, from;
  std::optional<double> inject;  // percent
  bool calibrate = false;
  Format format = Format::text;
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

void write_out(const std::string& folder, const std::string& name, const Json& json) {
  if (folder.empty()) return;
  make_folder(folder);
  replace_file(folder, name, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

WorkerProgram candidate_of(const WorkerProgram& own, const GateCommandOptions& options) {
  return options.candidate.empty() ? own : with_plugins(worker_of(options.candidate), own.plugins);
}

// What is compared, for the comment.
const std::string& name_of_suite(const GateCommandOptions& options) {
  return options.command.text.empty() ? options.suite.file : options.command.text;
}

// Measures the suite, and writes and prints the report.
int measure_and_report(GateSuite& suite, const GateCommandOptions& options) {
  const auto report = run_gate(suite, options.gate);
  const auto json = json_of(report, suite, options.gate);
  write_out(options.out, "gate.json", json);
  if (!options.comment.empty())
    replace_file(options.comment, comment_of(report, suite, options.gate, name_of_suite(options), options.base));
  if (options.format == Format::json) {
    print_json(json);
  } else {
    const bool is_text = options.format == Format::text;
    fmt::print("{}", text_of(report, suite, options.gate,
                             {.format = table_format(options.format),
                              .colours = is_text && shows_colours(stdout),
                              .max_width = is_text ? table_width(stdout) : 0}));
  }
  return exit_code_of(report.result);
}

int measure_and_report(const SuiteOptions& suite_options, std::vector<Side> sides, const GateCommandOptions& options) {
  sides.back().injected_slowdown_percent = options.inject.value_or(0);
  MethodSuite suite(suite_options, std::move(sides));
  return measure_and_report(suite, options);
}

int run_gate_of_builds(const WorkerProgram& own, const GateCommandOptions& options) {
  const auto base = with_plugins(worker_of(options.base), own.plugins), candidate = candidate_of(own, options);
  return measure_and_report(options.suite, {{.name = "base", .worker = base}, {.name = "candidate", .worker = candidate}},
                            options);
}

RepositoryOptions repository_of(const GateCommandOptions& options) {
  return {.root = options.root.empty() ? "." : options.root,
          .base = options.base,
          .python = project_python(),
          .prepare = options.prepare,
          .quiet = options.suite.quiet};
}

// The sides are the working tree of a repository and one of its revisions.
int run_gate_of_repository(const WorkerProgram& own, const GateCommandOptions& options) {
  const RepositorySides repository(own, repository_of(options), options.suite.file);
  auto suite = options.suite;
  suite.file = repository.suite();
  try {
    return measure_and_report(suite, repository.sides(), options);
  } catch (const UsageError& error) {
    throw UsageError(without_copies(error.what(), repository.sides()));
  } catch (const WorkerError& error) {
    throw WorkerError(without_copies(error.what(), repository.sides()));
  }
}

// The sides are those of run_gate_of_repository(), and a command measures them.
int run_gate_of_command(const WorkerProgram& own, const GateCommandOptions& options) {
  const RepositorySides repository(own, repository_of(options), "");
  auto sides = repository.sides();
  sides.back().injected_slowdown_percent = options.inject.value_or(0);
  CommandSuite suite(options.command, options.suite, std::move(sides), repository.scratch());
  return measure_and_report(suite, options);
}

// Runs three sides of the working tree in turns, of which the third is told to slow down.
Recordings record_command(const WorkerProgram& own, const GateCommandOptions& options) {
  const RepositorySides repository(own, repository_of(options), "");
  const double slowdown = options.inject.value_or(10);
  std::vector<Side> sides(3, repository.sides().back());
  sides[0].name = "base";
  sides[1].name = "same";
  sides[2].name = "slowed";
  sides[2].injected_slowdown_percent = slowdown;
  CommandSuite suite(options.command, options.suite, std::move(sides), repository.scratch());
  return record(suite, options.gate.plan, options.recordings, slowdown);
}

// Runs the gate. An error is written to the file for the comment, too, unless that file is what cannot be written.
int run_gate(const WorkerProgram& own, const GateCommandOptions& options) {
  try {
    if (!options.command.text.empty()) return run_gate_of_command(own, options);
    return options.root.empty() ? run_gate_of_builds(own, options) : run_gate_of_repository(own, options);
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    try {
      if (!options.comment.empty()) replace_file(options.comment, comment_of_error(error_text(error), name_of_suite(options)));
    } catch (const UsageError&) {
    }
    throw;
  }
}

// The recordings that --from names, or else new ones.
Recordings recordings_of(const WorkerProgram& own, const GateCommandOptions& options) {
  if (!options.from.empty()) {
    for (const auto& [is_given, name] : {std::pair(!options.suite.file.empty(), "a sweep"),
                                         {!options.candidate.empty(), "--candidate"},
                                         {options.inject.has_value(), "--inject"},
                                         {!options.suite.settings.empty(), "--set"},
                                         {!options.command.text.empty(), "--command"}})
      if (is_given) throw UsageError(fmt::format("--from reads recordings from a file, so {} cannot be given with it", name));
    return read_recordings(options.from);
  }
  if (!options.command.text.empty()) return record_command(own, options);
  return record_suite(candidate_of(own, options), options.suite, options.gate.plan, options.recordings,
                      options.inject.value_or(10));
}

int run_calibration(const WorkerProgram& own, const GateCommandOptions& options) {
  const auto calibration = calibrate(recordings_of(own, options), options.gate.plan, options.trials, options.suite.seed);
  const auto json = json_of(calibration);
  write_out(options.out, "calibration.json", json);
  if (options.format == Format::json) {
    print_json(json);
  } else {
    print_table(table_of(calibration), options.format);
    fmt::print("\n{}\n", summary_of(calibration));
    print_table(power_table_of(calibration), options.format);
  }
  return exit_code::success;
}

}  // namespace

Run add_gate_command(Command& command) {
  const auto options = std::make_shared<GateCommandOptions>();
  auto& suite = options->suite;
  suite.seed = std::random_device{}();
  const std::string build = "a build folder, a program in one, or a git revision";
  add_sweep_argument(command, suite.file, /*required=*/false);
  command.add("--base", &options->base, "build to compare with: " + build + "; required unless --calibrate is given",
              {.placeholder = "BUILD", .completion = Completion::files});
  command.add("--candidate", &options->candidate, "build that may be slower: " + build,
              {.placeholder = "BUILD", .default_text = "this build", .completion = Completion::files});
  command.add(
      "--root", &options->root,
      "folder of a git repository whose files are compared, instead of builds of attnbench: the working tree as it is with "
      "the revision that --base names",
      {.placeholder = "FOLDER", .completion = Completion::files, .excludes = "--candidate"});
  command.add("--prepare", &options->prepare,
              "shell command that is run first in a copy of each side, in a Python environment of its own, such as "
              "\"pip install -e .\"",
              {.placeholder = "COMMAND"});
  command.add(
      "--command", &options->command.text,
      "shell command that runs any benchmarks, instead of a sweep; it is run in turns in a copy of each side, and writes " +
          format_names() + " to standard output or to the file that stands in place of {out}",
      {.placeholder = "COMMAND", .excludes = "--candidate"});
  command.add("--measure", &options->command.measure, "what of the command's results is compared, such as items_per_second",
              {.placeholder = "NAME", .default_text = "the time", .needs = "--command"});
  command.add("--deadline", &options->command.deadline_s, "after so many seconds a run of the command is ended",
              {.unit = "s", .min = 0, .needs = "--command"});
  command.add("--waivers", &options->gate.waivers, "TOML file of cases that are allowed to fail, each with the reason",
              {.placeholder = "FILE", .completion = Completion::files});
  command.add(
      "--quick", &options->gate.plan.is_quick,
      "decide from fewer pairs of processes with the same error rates: measure first what seems slower, and stop at the first "
      "regression, as soon as every case passes, or at the time limit",
      {.excludes = "--instructions"});
  command.add("--time-limit", &options->gate.time_limit_s, "time for checking and measuring with --quick",
              {.unit = "s", .min = 0, .needs = "--quick"});
  add_set_option(command, suite.settings);
  command.add("--looks", &options->gate.plan.looks, "numbers of pairs of processes after which the cases are judged",
              {.separator = ',', .excludes = "--quick"});
  add_criteria_options(command, options->gate.plan.criteria);
  command.add("--pass-alpha", &options->gate.plan.pass_alpha,
              "max probability that a case passes although it is slower by the margin or more", {.min = 0, .max = 1});
  command.add("--memory-shift", &options->gate.memory_shift,
              "smallest relative growth of memory that counts as a regression, 0.01 for 1 %", {.min = 0});
  command.add("--instructions", &suite.instructions, "count instructions with valgrind's callgrind instead of measuring time");
  command.add("--instruction-shift", &options->gate.instruction_shift,
              "smallest relative growth of the number of instructions that counts as a regression", {.min = 0});
  command.add("--calibrate", &options->calibrate,
              "compare the candidate with itself and with itself slowed down, and report how often the gate is wrong",
              {.excludes = "--root"});
  command.add("--recordings", &options->recordings, "number of processes for each case and side",
              {.min = 1, .needs = "--calibrate"});
  command.add("--trials", &options->trials, "number of suites that are resampled from the recordings",
              {.min = 1, .needs = "--calibrate"});
  command.add("--from", &options->from,
              "calibration.json of an earlier calibration, whose recordings are used instead of new ones",
              {.placeholder = "FILE", .completion = Completion::files, .excludes = "--recordings", .needs = "--calibrate"});
  command.add("--inject", &options->inject,
              "slow the candidate down, to check that the gate notices it; a command is told by the variable ATTNBENCH_INJECT",
              {.unit = "percent", .min = 0, .default_text = "0, or 10 with --calibrate"});
  command.add("--out", &options->out, "folder for gate.json or, with --calibrate, calibration.json, which hold every median",
              {.placeholder = "FOLDER", .completion = Completion::files});
  command.add("--comment", &options->comment, "file to write the report to as a comment on a pull request, in Markdown",
              {.placeholder = "FILE", .completion = Completion::files, .excludes = "--calibrate"});
  command.add("--seed", &suite.seed, "seed of the order in which cases and builds run, and of resampling",
              {.default_text = "random"});
  add_format_option(command, options->format, {Format::text, Format::markdown, Format::json});
  add_quiet_option(command, suite.quiet);
  command.add_example("gate ci --base origin/main", "compares this build with a git revision, which is built first");
  command.add_example("gate suite.toml --root . --base origin/main --prepare \"pip install -e .\"",
                      "compares the files of any repository with those of a revision of it");
  command.add_example("gate --command \"build/bench > {out}\" --prepare \"make bench\" --base main",
                      "compares what any benchmark program says in the working tree and in a revision");
  return [options](const WorkerProgram& own) {
    auto& file = options->suite.file;
    const bool has_command = !options->command.text.empty();
    if (has_command && !file.empty()) throw UsageError("gate compares a sweep or what --command runs, not both");
    if (has_command)
      for (const auto& [is_given, name] :
           {std::pair(options->suite.instructions, "--instructions"), {!options->suite.settings.empty(), "--set"}})
        if (is_given) throw UsageError(fmt::format("{} is for a sweep and cannot be given with --command", name));
    if (!options->prepare.empty() && options->root.empty() && !has_command)
      throw UsageError("--prepare can only be given with --root or --command");
    if (file.empty() && !has_command && options->from.empty())
      throw UsageError("gate needs a sweep or --command; only --calibrate --from FILE needs none");
    if (!options->calibrate && options->base.empty())
      throw UsageError(
          "gate needs --base, which names what to compare with: a build folder, a program in one, or a git revision");
    if (!file.empty()) file = find_file(kSweeps, file);
    try {
      return options->calibrate ? run_calibration(own, *options) : run_gate(own, *options);
    } catch (const WorkerError& error) {
      print_error(error);
      return exit_code::unusable;
    }
  };
}

}  // namespace attnbench
