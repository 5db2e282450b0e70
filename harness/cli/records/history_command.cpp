// `attnbench history`: adds what a commit's benchmarks measured to a history, and draws the history.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/plot_scripts.h"
#include "harness/cli/shared_options.h"
#include "harness/exports/exported_cases.h"
#include "harness/files/replace_file.h"
#include "harness/foreign/run_sets.h"
#include "harness/gate/git.h"
#include "harness/history/history_report.h"
#include "harness/history/history_store.h"
#include "harness/machine/machine.h"
#include "harness/records/record_folders.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

constexpr const char* kHistoryPackages = "Jinja2";

struct HistoryOptions {
  std::string action;
  std::vector<std::string> places;
  std::string to, commit, machine, measure, out = "history.html", title, python;
  std::optional<double> commit_time_s;
  ChangeCriteria criteria;
  Format format = Format::text;
};

std::string utc_text(int64_t seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

// The commit that was measured: of the repository that the current folder lies in, or one that the options describe.
HistoryLine commit_of(const HistoryOptions& options) {
  HistoryLine line;
  if (options.commit_time_s) {
    if (options.commit.empty()) throw UsageError("--commit-time needs --commit, the full id of the commit that was measured");
    line.commit = options.commit;
    line.committed_at = utc_text(int64_t(*options.commit_time_s));
    return line;
  }
  const auto revision = options.commit.empty() ? "HEAD" : options.commit;
  line.commit = find_commit(".", revision);
  if (line.commit.empty())
    throw UsageError(
        fmt::format("'{}' is no commit of the repository here; expected one, or --commit with --commit-time", revision));
  const auto shown = git_output(".", {"show", "--no-patch", "--format=%ct%n%s", line.commit});
  line.committed_at = utc_text(std::strtoll(shown.c_str(), nullptr, 10));
  line.subject = shortened(first_line(shown.substr(shown.find('\n') + 1)), 200);
  return line;
}

// The lines of other programs' results. One run has a value without an interval; several have that of their median.
void add_runs(std::vector<HistoryLine>& lines, HistoryLine line, const RunSet& runs) {
  line.measure = runs.measure.name;
  line.unit = runs.measure.unit;
  line.more_is_better = runs.measure.more_is_better;
  line.measured_at = utc_text(std::time(nullptr));
  for (const auto& benchmark : runs.benchmarks) {
    if (benchmark.values.empty()) {
      print_notice(fmt::format("{} is left out, because it has no value: {}\n", benchmark.name, benchmark.fault));
      continue;
    }
    line.name = benchmark.name;
    line.value = median(benchmark.values);
    line.low = line.high = std::nan("");
    if (benchmark.values.size() > 1) {
      const auto interval = order_statistic_interval(benchmark.values);
      line.low = interval.low;
      line.high = interval.high;
    }
    lines.push_back(line);
  }
}

// Times, memory and ratios to a baseline of the cases of a folder of records.
void add_records(std::vector<HistoryLine>& lines, const HistoryLine& begun, const std::string& given, bool names_machine) {
  std::vector<RecordsOfFolder> folders;
  for (const auto& folder : record_folders(given)) folders.push_back({folder, read_records(folder), {}});
  for (const auto& exported : exported_cases(folders).cases) {
    auto line = begun;
    line.name = exported.name;
    if (!names_machine && exported.record->has("cpu_model")) line.machine = exported.record->text("cpu_model");
    line.measured_at = exported.record->text("finished_at");
    for (const auto& measure : measures_of(*exported.record)) {
      if (measure.name != "time" && measure.name != "memory" && measure.name != "baseline-ratio") continue;
      if (!(measure.value > 0)) continue;
      line.measure = measure.name;
      line.unit = measure.name == "time" ? "s" : measure.name == "memory" ? "bytes" : "";
      line.value = measure.value;
      line.low = measure.has_interval() ? measure.interval.low : std::nan("");
      line.high = measure.has_interval() ? measure.interval.high : std::nan("");
      lines.push_back(line);
    }
  }
}

int add_to_history(const HistoryOptions& options) {
  if (options.to.empty())
    throw UsageError("history add needs --to: a file that ends in .jsonl, or a branch such as origin/benchmarks");
  auto begun = commit_of(options);
  begun.machine = options.machine.empty() ? fmt::format("{}, {}", cpu_model(), count_of(available_processors(), "processor"))
                                          : options.machine;
  std::vector<HistoryLine> lines;
  for (const auto& place : options.places) {
    if (is_run_set(place)) add_runs(lines, begun, read_run_set(place, options.measure));
    else if (!options.measure.empty()) throw UsageError("--measure is for files *.json that other benchmark programs wrote");
    else add_records(lines, begun, place, !options.machine.empty());
  }
  if (lines.empty()) throw UsageError(fmt::format("{} has no value to add", options.places.front()));
  // What is written must be what can be read.
  for (const auto& line : lines) read_history(text_of(line), line.name);
  append_history(options.to, ".", lines);
  print_notice(
      fmt::format("{} of commit {} added to {}\n", count_of(lines.size(), "value"), begun.commit.substr(0, 12), options.to));
  return exit_code::success;
}

// A file for a program that this one starts, which the destructor removes.
class PassedFile {
 public:
  explicit PassedFile(const std::string& text)
      : path_((std::filesystem::temp_directory_path() / "attnbench-history-XXXXXX").string()) {
    const int file = mkstemp(path_.data());
    if (file < 0) throw UsageError(fmt::format("{}: cannot make a temporary file", path_));
    close(file);
    replace_file(path_, text);
  }
  ~PassedFile() {
    std::error_code error;
    std::filesystem::remove(path_, error);
  }
  PassedFile(const PassedFile&) = delete;
  PassedFile& operator=(const PassedFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

int report_history(const HistoryOptions& options) {
  std::vector<HistoryLine> lines;
  for (const auto& place : options.places) {
    const auto more = read_history(read_history_text(place, "."), place);
    lines.insert(lines.end(), more.begin(), more.end());
  }
  if (lines.empty())
    throw UsageError(fmt::format("{} has no lines yet; `attnbench history add` adds some", options.places.front()));
  const auto json = json_of(report_of(lines, options.criteria));
  if (options.format == Format::json) {
    print_json(json, -1);
    return exit_code::success;
  }
  const PassedFile file(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  Script script = {.name = "history",
                   .arguments = {file.path(), fmt::format("--out={}", options.out)},
                   .python = options.python,
                   .packages = kHistoryPackages};
  script.add_option("title", options.title);
  print_text(run_script(script));
  return exit_code::success;
}

}  // namespace

Run add_history_command(Command& command) {
  const auto options = std::make_shared<HistoryOptions>();
  command.add("action", &options->action, "add: append what a commit measured; report: draw a history as a page",
              {.choices = {"add", "report"}, .required = true});
  command.add("places", &options->places,
              "to add: folders of records, or files or folders of files *.json that other benchmark programs wrote; to report: "
              "histories, each a file *.jsonl or a branch such as origin/benchmarks",
              {.required = true, .completion = Completion::files});
  command.add(
      "--to", &options->to,
      "history to add to: a file *.jsonl, or REMOTE/BRANCH, whose file history.jsonl gets the lines in a commit that is pushed",
      {.placeholder = "PLACE", .completion = Completion::files});
  command.add("--commit", &options->commit, "commit that was measured", {.placeholder = "REVISION", .default_text = "HEAD"});
  command.add("--commit-time", &options->commit_time_s,
              "when it was committed, for a --commit that is not in the repository here",
              {.unit = "s since 1970", .min = 0, .max = 1e11});
  command.add("--machine", &options->machine, "name of the machine that measured; machines are never compared",
              {.placeholder = "TEXT", .default_text = "the processor"});
  command.add("--measure", &options->measure, "what of other programs' results is added, such as items_per_second",
              {.placeholder = "NAME", .default_text = "the time"});
  command.add("--out", &options->out, "page to write",
              {.short_name = "-o", .placeholder = "FILE", .completion = Completion::files});
  command.add("--title", &options->title, "title of the page", {.placeholder = "TEXT", .default_text = "History"});
  command.add("--alpha", &options->criteria.alpha, "probability of any false change, over all lines of the page together",
              {.min = 1e-9, .max = 0.5});
  command.add("--min-shift", &options->criteria.min_shift, "relative changes up to this are none, 0.03 for 3 %",
              {.min = 0, .max = 10});
  add_format_option(command, options->format, {Format::text, Format::json});
  add_python_option(command, options->python, kHistoryPackages);
  command.add_example("history add records --to origin/benchmarks",
                      "adds the records of a folder as those of HEAD, and pushes them");
  command.add_example("history report history.jsonl --out history.html",
                      "draws a line for each case, and names the commits that changed it");
  return
      [options](const WorkerProgram&) { return options->action == "add" ? add_to_history(*options) : report_history(*options); };
}

}  // namespace attnbench
