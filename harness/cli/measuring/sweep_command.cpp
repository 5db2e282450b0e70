// `attnbench sweep`: runs a sweep file into a folder, or shows its plan, and answers which method is faster.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <random>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/measuring/progress.h"
#include "harness/cli/rendering/answers.h"
#include "harness/cli/rendering/case_names.h"
#include "harness/cli/rendering/record_table.h"
#include "harness/cli/rendering/speedup_report.h"
#include "harness/cli/shared_options.h"
#include "harness/cli/terminal.h"
#include "harness/files/known_files.h"
#include "harness/records/record_folders.h"
#include "harness/statistics/comparison.h"
#include "harness/sweep/prediction.h"
#include "harness/sweep/sweep_run.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"
#include "harness/text/shell_words.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

struct SweepOptions {
  std::string file, out, shard, resume = "missing", like;
  std::vector<std::string> methods, settings;
  Format format = Format::text;
  bool dry_run = false, quiet = false, verbose = false, across_boots = false, exploratory = false, forked = false;
  uint64_t order_seed = std::random_device()();

  Resume resume_mode() const {
    if (resume == "all") return Resume::all;
    if (resume == "failed") return Resume::failed;
    return resume == "stale" ? Resume::stale : Resume::missing;
  }
  Verbosity verbosity() const { return quiet ? Verbosity::quiet : verbose ? Verbosity::verbose : Verbosity::normal; }
};

// The command that measures the same cases into another folder.
std::string command_of(const SweepOptions& options, const std::vector<std::string>& plugins) {
  std::vector<std::string> words = {"attnbench", "sweep", options.file};
  const auto add = [&](const char* option, const std::string& value) {
    words.emplace_back(option);
    words.push_back(value);
  };
  if (!options.methods.empty()) add("--methods", fmt::format("{}", fmt::join(options.methods, ",")));
  for (const auto& setting : options.settings) add("--set", setting);
  if (!options.like.empty()) add("--like", options.like);
  for (const auto& plugin : plugins) add("--plugin", plugin);
  if (options.exploratory) words.emplace_back("--exploratory");
  if (options.forked) words.emplace_back("--forked");
  return shell_text(words);
}

// The methods in the values of --methods, such as "softmax,linear:chunk=64". A comma also separates the options of a method: a
// piece that has an equals sign but no colon belongs to the method before it.
std::vector<std::string> split_methods(const std::vector<std::string>& given) {
  std::vector<std::string> methods;
  for (const auto& text : given) {
    for (size_t begin = 0; begin <= text.size();) {
      const auto end = std::min(text.find(',', begin), text.size());
      const auto piece = text.substr(begin, end - begin);
      if (begin > 0 && piece.find('=') != std::string::npos && piece.find(':') == std::string::npos)
        methods.back() += "," + piece;
      else methods.push_back(piece);
      begin = end + 1;
    }
  }
  return methods;
}

SweepOverrides overrides_of(const SweepOptions& options) {
  SweepOverrides overrides{split_methods(options.methods), {}, options.like};
  for (const auto& setting : options.settings) overrides.add_setting(setting);
  return overrides;
}

// Up to so many processes a sweep is a first look at the numbers, which nobody takes for a test of a difference.
constexpr int64_t kMaxExploratoryProcesses = 3;

// How many processes a case has, and how many a comparison of two such runs needs.
struct Design {
  int64_t processes = 1;
  size_t cases = 0;  // of the whole sweep, also if only a shard of it is planned; without those that are known not to run
  int64_t needed() const { return int64_t(processes_to_decide(std::max<size_t>(1, cases))); }
  bool can_decide() const { return processes >= needed(); }
};

// `planned` are the records of the plan with what is known to prevent a case from running.
Design design_of(const SweepPlan& plan, const std::vector<Record>& planned) {
  const auto prevented = std::count_if(planned.begin(), planned.end(), [](const Record& r) { return r.has("outcome"); });
  // A shard does not know what prevents the cases of the others, and all shards must decide alike.
  const auto cases = plan.shard.is_all() ? plan.cases.size() - size_t(prevented) : plan.sweep.cases().size();
  return {plan.cases.front().processes, cases};
}

Design design_of(SweepPlan plan) {
  predict_without_ceilings(plan, {});
  return design_of(plan, plan.planned);
}

// Refuses a number of processes that is meant for a comparison and too small for one. Such a run takes long, and whatever it
// measures, no case of it can be found different from another run.
void check_design(const Design& design, const SweepOptions& options) {
  if (options.exploratory || design.can_decide() || design.processes <= kMaxExploratoryProcesses) return;
  throw UsageError(
      fmt::format("processes = {} cannot decide: `attnbench compare` of two such runs could not find one of {} different, "
                  "whatever they measure; expected at least {} (--set timing.processes={}), at most {} for a first look, or the "
                  "option --exploratory",
                  design.processes, count_of(design.cases, "case"), design.needed(), design.needed(), kMaxExploratoryProcesses));
}

// Prints the planned cases with their predicted time and memory. As text, cases that will not run are counted by their reasons,
// unless `all` rows are wanted.
void print_plan(const SweepPlan& plan, const TimePredictor& predictor, Format format, Rows rows) {
  const auto& planned = plan.planned;
  if (format == Format::json) return print_json(to_json(planned));
  TextTable table;
  std::vector<const Record*> all;
  for (const auto& record : planned) all.push_back(&record);
  const auto axes = distinguishing_axes(all);
  const auto names = format == Format::csv ? MethodNames() : MethodNames(all);
  add_axes(table, axes);
  table.add_columns({right("predicted time"), right("predicted memory")});
  const bool folds = format == Format::text && rows == Rows::without_skipped;
  if (!folds) table.add_columns({"not run because"});
  auto answers = identifying_axes(all, axes);
  answers.emplace_back("predicted time");
  table.choose({.answers = std::move(answers), .left_out_first = {"predicted memory"}});
  add_common_axes(table, all, axes);
  std::vector<const Record*> baselines;
  for (const auto& baseline : plan.baselines) baselines.push_back(baseline ? &baseline->planned : nullptr);
  for (const auto& record : planned) {
    if (folds && record.has("outcome")) continue;
    std::vector<std::string> cells;
    for (const auto* axis : axes) cells.push_back(axis_text(record, axis->name, names));
    // The time rests on typical rates unless the method was measured in this setting.
    cells.push_back((predictor.has_seen(record) ? "" : "~ ") + format_ms(record.number("predicted_time_ms")));
    cells.push_back(format_bytes(predicted_need_bytes(record)));
    if (!folds)
      cells.push_back(record.has("outcome") ? fmt::format("{}: {}", record.text("failure_kind"), record.text("reason")) : "");
    table.add_row(std::move(cells), tone_of(record));
  }
  print_table(table, format);
  if (format == Format::csv) return;
  const auto design = design_of(plan, planned);
  if (folds)
    for (const auto& line : skipped_in_words(planned)) print_paragraph(line);
  fmt::print("\n{} in {}, predicted to take about {}\n", count_of(planned.size(), "case"), count_of(design.processes, "round"),
             format_seconds(predicted_sweep_s(planned, baselines)));
  if (!design.can_decide())
    print_paragraph(fmt::format(
        "With {} a case, `attnbench compare` of two such runs could find none of {} different, whatever they measure; it "
        "needs {}.",
        count_of(design.processes, "process"), count_of(design.cases, "case"), design.needed()));
}

int dry_run(SweepPlan plan, const SweepOptions& options) {
  std::vector<Record> recorded;
  if (!options.out.empty() && std::filesystem::exists(std::filesystem::path(options.out) / "records.jsonl"))
    recorded = read_records(options.out);
  const auto predictor = predict_without_ceilings(plan, recorded);
  print_plan(plan, predictor, options.format, options.verbose ? Rows::all : Rows::without_skipped);
  return exit_code::success;
}

// The names at the beginning of a list, as text.
std::string first_names(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 5;
  const auto shown = std::min(names.size(), kNamed);
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + std::ptrdiff_t(shown), ", "),
                     names.size() > shown ? ", …" : "");
}

// Says which of the values, which are called "case" (by their times) or "ratio", have an interval that reaches further than
// usual; empty if none has. `reach_of` gives the relative distance from a value to the farther end of its interval, or
// NaN.
std::string noise_in_words(const std::vector<Record>& records, const CaseNames& case_names, const char* value,
                           double (*reach_of)(const Record&)) {
  std::vector<std::pair<double, std::string>> noisy;
  size_t measured = 0;
  double limit = 0;
  for (const auto& record : records) {
    const auto noise = reach_of(record);
    if (!record.measured() || record.has("external_source") || std::isnan(noise)) continue;
    ++measured;
    limit = noise_limit(record);
    if (noise > limit) noisy.emplace_back(noise, fmt::format("{} ±{:.1f} %", case_names.of(record), 100 * noise));
  }
  if (noisy.empty()) return "";
  std::sort(noisy.rbegin(), noisy.rend());
  std::vector<std::string> names;
  for (auto& [noise, name] : noisy) names.push_back(std::move(name));
  return fmt::format("{} of {} {} noisier than usual (±{:g} %), so smaller differences from {} may be noise: {}\n", noisy.size(),
                     count_of(measured, value), is_or_are(noisy.size()), 100 * limit, noisy.size() == 1 ? "it" : "them",
                     first_names(names));
}

// Says which cases of the plan stayed disturbed; empty if none did.
std::string disturbance_in_words(const std::vector<Record>& records, const CaseNames& case_names) {
  std::vector<std::string> names;
  for (const auto& record : records)
    if (record.measured() && record.number("disturbed_processes") > 0) names.push_back(case_names.of(record));
  if (names.empty()) return "";
  return fmt::format("{} of {} {} processes that were disturbed (`attnbench doctor --noise` says what helps): {}\n", names.size(),
                     count_of(records.size(), "case"), has_or_have(names.size()), first_names(names));
}

// Says that the run cannot decide a comparison; empty if it can.
std::string exploratory_in_words(const Design& design) {
  if (design.can_decide()) return "";
  return fmt::format("; exploratory: `attnbench compare` needs {} a case, not {}", count_of(design.needed(), "process"),
                     design.processes);
}

int run_sweep(const WorkerProgram& own, const SweepOptions& options) {
  const auto file = find_file(kSweeps, options.file);
  auto worker = with_plugins_of(file, own);
  worker.forks = options.forked;
  if (const auto folder = std::filesystem::path(file).parent_path(); !folder.empty())
    worker.methods_folders.insert(worker.methods_folders.begin(), folder.string());
  auto plan = plan_sweep(worker, file, overrides_of(options), options.shard);
  const auto design = design_of(plan);
  check_design(design, options);
  if (options.dry_run) return dry_run(std::move(plan), options);

  const CaseNames case_names(plan.planned);
  SweepRun run(worker, std::move(plan),
               {options.out, options.resume_mode(), options.across_boots, options.order_seed, command_of(options, own.plugins)});
  const auto due_cases = run.due_cases();
  size_t failed = 0;
  try {
    Progress progress(options.verbosity(), case_names);
    failed = run.measure(progress);
  } catch (const Interrupted&) {
    print_notice(fmt::format("{}: interrupted; the same command continues where this one stopped\n", run.folder().path()));
    throw;
  }
  if (!options.quiet) {
    print_notice(fmt::format("{}: {}{}{}\n", run.folder().path(),
                             due_cases == 0 ? run.cases() == 1 ? "the only case is recorded"
                                                               : fmt::format("all {} are recorded", count_of(run.cases(), "case"))
                                            : fmt::format("{} recorded", count_of(due_cases, "case")),
                             failed > 0 ? fmt::format(", {} failed", failed) : "", exploratory_in_words(design)));
    const auto& records = run.folder().records();
    print_notice(noise_in_words(records, case_names, "case", noise_of_time));
    print_notice(noise_in_words(records, case_names, "ratio", relative_reach_of_ratio));
    print_notice(disturbance_in_words(records, case_names));
    print_notice(speedups_in_words(records, run.folder().path()));
    if (is_terminal(stdout) && options.format == Format::text) print_answers(speed_answers(records));
    if (is_terminal(stdout) || options.format != Format::text)
      print_records(records, options.format, options.verbose ? Rows::all : Rows::without_skipped);
  }
  return failed > 0 ? exit_code::failure : exit_code::success;
}

}  // namespace

Run add_sweep_command(Command& command) {
  const auto options = std::make_shared<SweepOptions>();
  add_sweep_argument(command, options->file);
  command.add("--out", &options->out, "folder that the records are written to",
              {.placeholder = "FOLDER", .default_text = "results/SWEEP/MACHINE", .completion = Completion::files});
  command.add("--resume", &options->resume,
              "which cases run if the folder holds records: those without a record (missing), all if the records are of another "
              "build, machine or configuration and otherwise the missing ones (stale), the missing and the failed ones, or all",
              {.choices = {"missing", "stale", "failed", "all"}});
  command.add("--methods", &options->methods, "methods that replace those of the file, such as softmax,linear:chunk=64",
              {.placeholder = "METHODS", .completion = Completion::methods});
  add_like_option(command, options->like);
  add_set_option(command, options->settings);
  command.add("--shard", &options->shard,
              "run only the i-th of n parts of the cases, such as 2/8; `attnbench merge` joins their folders",
              {.placeholder = "I/N"});
  command.add("--across-boots", &options->across_boots,
              "also continue cases whose first processes ran on another host or before a reboot");
  command.add("--order-seed", &options->order_seed, "seed of the order of the cases in each round", {.default_text = "random"});
  command.add("--exploratory", &options->exploratory,
              "accept more than 3 processes a case even if they are too few for a comparison with another run");
  add_forked_option(command, options->forked);
  command.add("--dry-run", &options->dry_run, "list the cases with their predicted time and memory, and run none");
  add_format_option(command, options->format);
  add_quiet_option(command, options->quiet);
  command.add("--verbose", &options->verbose, "print more about each case, and a row for each skipped one",
              {.short_name = "-v", .excludes = "--quiet"});
  command.add_example("sweep figure1",
                      "measures the cases of sweeps/figure1.toml; run it again to continue after an interruption");
  command.add_example("sweep quickstart --out /tmp/short --set query_len=512-1024*2 --methods sdpa,linear",
                      "measures two methods at lengths 512 and 1024 into a folder of its own");
  return [options](const WorkerProgram& worker) { return run_sweep(worker, *options); };
}

}  // namespace attnbench
