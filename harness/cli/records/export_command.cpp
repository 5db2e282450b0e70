// `attnbench export`: writes folders of records in the JSON of Google Benchmark.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "harness/analysis/google_benchmark.h"
#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/shared_options.h"
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
};

int run_export(const ExportOptions& options) {
  std::vector<RecordsOfFolder> folders;
  for (const auto& given : options.folders)
    for (const auto& folder : record_folders(given))
      folders.push_back(
          {folder, read_records(folder), std::filesystem::is_directory(folder) ? read_processes(folder) : std::vector<Record>()});
  const auto made = google_benchmark_export(folders, options.google_benchmark);
  if (made.json.at("benchmarks").empty())
    throw UsageError(fmt::format("{} holds no case that was measured, expected at least one to export", options.folders.front()));
  if (made.left_out > 0)
    print_notice(fmt::format("{} {} left out, because {} not measured, or measured elsewhere\n",
                             count_of(made.left_out, "record"), is_or_are(made.left_out),
                             made.left_out == 1 ? "it was" : "they were"));
  if (options.out.empty()) print_json(made.json);
  else replace_file(options.out, made.json.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n");
  return exit_code::success;
}

}  // namespace

Run add_export_command(Command& command) {
  const auto options = std::make_shared<ExportOptions>();
  command.add("folders", &options->folders,
              "folders of records, or folders that contain such folders; no two may have a case in common",
              {.required = true, .completion = Completion::files});
  command.add("--format", &options->format,
              "google-benchmark: the JSON that Google Benchmark writes, which dashboards such as github-action-benchmark read",
              {.choices = {"google-benchmark"}});
  command.add(
      "--aggregates-only", &options->google_benchmark.aggregates_only,
      "leave out the single processes of a case that has several, so that a dashboard shows only their mean, median and spread");
  command.add("--out", &options->out, "file to write to",
              {.placeholder = "FILE", .default_text = "standard output", .completion = Completion::files});
  command.add_example("export results/repeat/*/run-1 --format google-benchmark --out /tmp/benchmarks.json",
                      "writes the records of a folder for a dashboard");
  return [options](const WorkerProgram&) { return run_export(*options); };
}

}  // namespace attnbench
