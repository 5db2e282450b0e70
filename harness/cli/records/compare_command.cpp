// `attnbench compare`: compares two folders, or the methods of one folder with a baseline, and chooses the exit code.
#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/rendering/answers.h"
#include "harness/cli/rendering/comparison_report.h"
#include "harness/cli/rendering/run_comparison.h"
#include "harness/cli/rendering/speedup_report.h"
#include "harness/cli/shared_options.h"
#include "harness/records/record_folders.h"
#include "harness/schema/field.h"
#include "harness/schema/method_names.h"
#include "harness/text/errors.h"
#include "harness/text/nearest.h"
#include "harness/text/notice.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

struct CompareOptions {
  std::string a, b, baseline, measure, quantity = "auto";
  std::vector<std::string> apart, fail_on;
  double alpha = EquivalenceCriteria{}.alpha;
  double within_percent = 100 * EquivalenceCriteria{}.within;
  Format format = Format::text;

  EquivalenceCriteria criteria() const { return {alpha, within_percent / 100}; }
  std::optional<Quantity> asked_quantity() const {
    if (quantity == "auto") return std::nullopt;
    return quantity == "ratio" ? Quantity::ratio : Quantity::time;
  }
};

// A name that --fail-on takes, and the findings that it stands for. Nothing stands for a case that was not compared.
struct FailureName {
  const char* name;
  std::vector<std::optional<Finding>> findings;
};

const std::vector<FailureName>& failure_names() {
  using enum Finding;
  static const std::vector<FailureName> all = {
      {"different", {slower, faster}}, {"slower", {slower}},
      {"regression", {slower}},        {"faster", {faster}},
      {"improvement", {faster}},       {"equivalent", {equivalent}},
      {"cannot-tell", {cannot_tell}},  {"unmeasured", {std::nullopt}},
  };
  return all;
}

std::vector<std::string> names_for_failure() {
  std::vector<std::string> names;
  for (const auto& known : failure_names()) names.emplace_back(known.name);
  return names;
}

// The exit code for these findings. If it is not success, says on standard error which verdict is the reason.
int exit_code_of(const std::vector<std::optional<Finding>>& findings, const std::vector<std::string>& fail_on) {
  int code = exit_code::success;
  for (const auto& known : failure_names()) {
    if (std::find(fail_on.begin(), fail_on.end(), known.name) == fail_on.end()) continue;
    const auto count = std::count_if(findings.begin(), findings.end(), [&](const auto& finding) {
      return std::find(known.findings.begin(), known.findings.end(), finding) != known.findings.end();
    });
    if (count == 0) continue;
    print_notice(fmt::format("--fail-on {}: {} of {}\n", known.name, count, count_of(findings.size(), "case")));
    code = exit_code::failure;
  }
  return code;
}

std::vector<Record> records_of(const std::string& folder) {
  auto records = read_records(record_folder(folder));
  if (records.empty()) throw UsageError(folder + " holds no records");
  return records;
}

int compare_folders(const CompareOptions& options) {
  const auto known = axis_names();
  for (const auto& axis : options.apart)
    if (std::find(known.begin(), known.end(), axis) == known.end())
      throw UsageError(fmt::format("--apart: unknown axis '{}'{}", axis, suggestion(axis, known)));
  auto reading_b = std::async(std::launch::async, records_of, options.b);
  const auto a = records_of(options.a), b = reading_b.get();
  const auto pairs = pair_records({a, b, options.a, options.b}, options.apart);
  if (std::none_of(pairs.begin(), pairs.end(), [](const RecordPair& pair) { return pair.a && pair.b; }))
    throw UsageError(
        fmt::format("{} and {} have no case in common; --apart names axes in which they may differ", options.a, options.b));
  auto report = compare_records(pairs, options.apart, options.asked_quantity(), options.criteria());
  report.a = options.a;
  report.b = options.b;
  if (options.format == Format::json) print_json(json_of(report));
  else print_report(report, options.format);
  print_notice(shortage_in_words(report));
  std::vector<std::optional<Finding>> findings;
  for (const auto& c : report.cases)
    findings.push_back(c.quantity               ? std::optional(c.comparison.finding)
                       : c.pair.both_measured() ? std::optional(Finding::cannot_tell)
                                                : std::nullopt);
  return exit_code_of(findings, options.fail_on);
}

// Compares files of other benchmark programs.
int compare_files(const CompareOptions& options) {
  for (const auto& [is_given, name] : {std::pair(!options.apart.empty(), "--apart"), {options.quantity != "auto", "--quantity"}})
    if (is_given) throw UsageError(fmt::format("{} is for records of attnbench, not for results of other programs", name));
  const auto comparison =
      compare_runs(read_run_set(options.a, options.measure), read_run_set(options.b, options.measure), options.criteria());
  if (options.format == Format::json) print_json(json_of(comparison));
  else print_report(comparison, options.format);
  std::vector<std::optional<Finding>> findings;
  for (const auto finding : comparison.findings()) findings.emplace_back(finding);
  findings.resize(findings.size() + comparison.not_compared.size());
  return exit_code_of(findings, options.fail_on);
}

int compare_methods(const CompareOptions& options) {
  const auto records = records_of(options.a);
  const auto baseline = MethodNames(records).text_of(current_text("method", options.baseline));
  const SpeedupReport report{baseline, options.criteria().within, speedups(records, baseline, options.criteria().within),
                             speed_answers(records, baseline, options.criteria().within)};
  if (report.speedups.empty())
    throw UsageError(
        fmt::format("{} has no method besides the baseline {}, expected one to compare it with", options.a, options.baseline));
  if (options.format == Format::json) print_json(json_of(report));
  else print_report(report, options.format);
  std::vector<std::optional<Finding>> findings;
  for (const auto& speedup : report.speedups)
    findings.push_back(speedup.is_known ? std::optional(speedup.finding) : std::nullopt);
  return exit_code_of(findings, options.fail_on);
}

}  // namespace

Run add_compare_command(Command& command) {
  const auto options = std::make_shared<CompareOptions>();
  add_records_argument(command, "a", options->a);
  command.add("b", &options->b, "folder or file that is compared with a; not given with --baseline",
              {.completion = Completion::files});
  command.add("--baseline", &options->baseline,
              "compare the other methods of folder a with this one of its methods, written as in the records or in tables",
              {.placeholder = "METHOD", .completion = Completion::methods, .excludes = "b"});
  command.add("--apart", &options->apart, "axes in which the two records of a case may differ, such as device,method",
              {.placeholder = "AXES", .separator = ',', .excludes = "--baseline"});
  command.add("--quantity", &options->quantity,
              "what is compared: the ratio to the sweep's baseline, the time, or (auto) the ratio where both sides have it",
              {.choices = {"auto", "ratio", "time"}, .excludes = "--baseline"});
  command.add("--measure", &options->measure, "what of other programs' results is compared, such as items_per_second",
              {.placeholder = "NAME", .default_text = "the time", .excludes = "--baseline"});
  add_alpha_option(command, options->alpha);
  command.add("--within", &options->within_percent,
              "ratios within this many percent of 1 are equivalent; a case is different only if its ratio is beyond",
              {.placeholder = "PERCENT", .min = 0.01, .max = 1000});
  command.add("--fail-on", &options->fail_on, "verdicts that end the command with exit code 1 if any case has one of them",
              {.placeholder = "VERDICTS", .choices = names_for_failure(), .separator = ','});
  add_format_option(command, options->format);
  command.add_example(
      "compare before/ after/ --fail-on slower,cannot-tell",
      "says for each case whether it is slower, faster or equivalent in after/, and fails unless all are at least as fast");
  command.add_example(
      "compare before.json after.json",
      "compares what Google Benchmark, pytest-benchmark, hyperfine, asv or others wrote; a folder of such files is a "
      "side of several runs");
  command.add_example("compare folder/ --baseline softmax", "says how many times as fast as softmax the other methods are");
  return [options](const WorkerProgram&) {
    if (!options->baseline.empty()) return compare_methods(*options);
    if (options->b.empty())
      throw UsageError("compare needs the argument 'b', a second folder, or --baseline METHOD to compare the methods of one");
    const bool is_foreign = is_run_set(options->a) && is_run_set(options->b);
    if (!is_foreign && !options->measure.empty())
      throw UsageError("--measure is for two files or folders of files *.json that other benchmark programs wrote");
    return is_foreign ? compare_files(*options) : compare_folders(*options);
  };
}

}  // namespace attnbench
