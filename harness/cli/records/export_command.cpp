// `attnbench export`: writes folders of records in the formats of other programs.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/shared_options.h"
#include "harness/exports/asv_results.h"
#include "harness/exports/bencher_metrics.h"
#include "harness/exports/custom_benchmarks.h"
#include "harness/exports/exported_cases.h"
#include "harness/exports/google_benchmark.h"
#include "harness/exports/junit.h"
#include "harness/exports/openmetrics.h"
#include "harness/files/replace_file.h"
#include "harness/records/record_folders.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

struct ExportOptions {
  std::vector<std::string> folders;
  std::string format = "google-benchmark", out;
  GoogleBenchmarkOptions google_benchmark;
  std::string commit;
  std::optional<double> commit_time_s;
};

// Throws UsageError if an option belongs to another format than the one that is asked for.
void check_options(const ExportOptions& options) {
  const auto refuse = [&](bool is_given, const char* option, const char* format) {
    if (is_given && options.format != format)
      throw UsageError(fmt::format("{} is for the format {}, found --format {}", option, format, options.format));
  };
  refuse(options.google_benchmark.aggregates_only, "--aggregates-only", "google-benchmark");
  refuse(!options.commit.empty(), "--commit", "asv");
  refuse(options.commit_time_s.has_value(), "--commit-time", "asv");
  if (options.format == "asv" && options.out.empty())
    throw UsageError("asv keeps results in a folder, expected --out with the results_dir of asv.conf.json");
}

ExportedCases cases_of(const std::vector<RecordsOfFolder>& folders) {
  auto exported = exported_cases(folders);
  if (exported.cases.empty())
    throw UsageError(fmt::format("{} holds no case that was measured, expected at least one to export", folders.front().folder));
  if (exported.left_out > 0)
    print_notice(fmt::format("{} {} left out, because {} not measured, or measured elsewhere\n",
                             count_of(exported.left_out, "record"), is_or_are(exported.left_out),
                             exported.left_out == 1 ? "it was" : "they were"));
  return exported;
}

std::string text_of(const Json& json) { return json.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n"; }

void write_text(const ExportOptions& options, const std::string& text) {
  if (options.out.empty()) fmt::print("{}", text);
  else replace_file(options.out, text);
}

int run_export(const ExportOptions& options) {
  check_options(options);
  if (options.format == "junit") {
    write_text(options, junit_of(options.folders));
    return exit_code::success;
  }
  std::vector<RecordsOfFolder> folders;
  for (const auto& given : options.folders)
    for (const auto& folder : record_folders(given))
      folders.push_back(
          {folder, read_records(folder), std::filesystem::is_directory(folder) ? read_processes(folder) : std::vector<Record>()});
  const auto cases = cases_of(folders).cases;
  if (options.format == "asv")
    write_asv_results(cases, {options.commit, int64_t(options.commit_time_s.value_or(-1))}, options.out);
  else if (options.format == "bencher") write_text(options, text_of(bencher_metrics(cases)));
  else if (options.format == "github-action-benchmark") write_text(options, text_of(custom_benchmarks(cases)));
  else if (options.format == "openmetrics") write_text(options, openmetrics(cases));
  else write_text(options, text_of(google_benchmark_export(cases, options.google_benchmark)));
  return exit_code::success;
}

}  // namespace

Run add_export_command(Command& command) {
  const auto options = std::make_shared<ExportOptions>();
  command.add(
      "folders", &options->folders,
      "folders of records, or folders that contain such folders; no two may have a case in common. With --format junit folders "
      "that `gate --out` wrote, and files of what `verify --format json` printed",
      {.required = true, .completion = Completion::files});
  command.add(
      "--format", &options->format,
      "google-benchmark: the JSON that Google Benchmark writes; bencher: Bencher Metric Format; github-action-benchmark: its "
      "customSmallerIsBetter; openmetrics: gauges for Prometheus; asv: results of airspeed velocity; junit: verdicts of gate and "
      "verify as JUnit XML",
      {.choices = {"google-benchmark", "bencher", "github-action-benchmark", "openmetrics", "asv", "junit"}});
  command.add(
      "--aggregates-only", &options->google_benchmark.aggregates_only,
      "leave out the single processes of a case that has several, so that a dashboard shows only their mean, median and spread");
  command.add("--commit", &options->commit, "the commit that was measured, in full, for --format asv", {.placeholder = "HASH"});
  command.add("--commit-time", &options->commit_time_s, "when it was committed, for --format asv",
              {.unit = "s since 1970", .min = 0, .max = 1e11, .default_text = "when the last record was measured"});
  command.add("--out", &options->out, "file to write to, or with --format asv a folder",
              {.placeholder = "FILE", .default_text = "standard output", .completion = Completion::files});
  command.add_example("export results/repeat/*/run-1 --format google-benchmark --out /tmp/benchmarks.json",
                      "writes the records of a folder for a dashboard");
  return [options](const WorkerProgram&) { return run_export(*options); };
}

}  // namespace attnbench
