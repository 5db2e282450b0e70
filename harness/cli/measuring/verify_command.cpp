// `attnbench verify`: names the methods to verify, shows the progress, and prints the rows and a summary.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/shared_options.h"
#include "harness/cli/terminal.h"
#include "harness/process/worker_process.h"
#include "harness/schema/method_names.h"
#include "harness/sweep/catalogue.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"
#include "harness/text/units.h"
#include "harness/verification/verification.h"
#include "harness/verification/verified_rows.h"

namespace attnbench {
namespace {

struct VerifyOptions {
  std::vector<std::string> methods;
  std::string like;
  std::string device = "cpu";
  Format format = Format::text;
  double deadline_s = 900;  // of one worker
  bool quick = false, quiet = false, verbose = false;
};

// The names of the methods whose cases were verified so far.
MethodNames names_of(const std::vector<VerifiedRow>& rows) {
  std::vector<const Record*> records;
  for (const auto& row : rows)
    for (const auto& record : row.records) records.push_back(&record);
  return MethodNames(records);
}

// Shows on standard error which row is being verified, and prints a line for each method that is done.
class VerifyProgress {
 public:
  VerifyProgress(const std::vector<VerifiedRow>& rows, size_t methods, bool quiet)
      : rows_(rows), methods_(methods), line_(stderr, quiet) {}

  void show(const VerifiedRow& row) {
    line_.show(fmt::format("verifying {} ({} of {}), {}, {}, key lengths {}", row.method, reported_ + 1, methods_, row.dtype,
                           row.causal ? "causal" : "not causal", row.key_lengths));
  }

  void report(const std::string& method) {
    RowCounts counts;
    for (const auto& row : rows_)
      if (row.method == method) counts.add(row);
    ++reported_;
    if (line_.rewrites() && counts.failed == 0) return;
    line_.print(fmt::format("[{}/{}] {}: {} {}, {} unsupported{}{}", reported_, methods_, names_of(rows_).of(method),
                            count_of(counts.agree, "row"), counts.agree == 1 ? "agrees" : "agree", counts.unsupported,
                            counts.unverified > 0 ? fmt::format(", {} unverified", counts.unverified) : "",
                            counts.failed > 0 ? fmt::format(", {} FAILED", counts.failed) : ""),
                counts.failed > 0 ? Tone::bad : Tone::plain);
  }

 private:
  const std::vector<VerifiedRow>& rows_;
  size_t methods_;
  StatusLine line_;
  size_t reported_ = 0;  // number of methods that are done
};

std::string error_text(double error) { return error < 0 ? "–" : fmt::format("{:.1e}", error); }
Json error_json(double error) { return error < 0 ? Json() : Json(error); }

// How many rows agree, how large their errors are, and how many do not agree.
std::string summary_of(const std::vector<VerifiedRow>& rows) {
  RowCounts counts;
  double value = -1, gradient = -1, decoding = -1;
  for (const auto& row : rows) {
    if (!row.is_complete()) continue;
    counts.add(row);
    if (row.failed()) continue;
    value = std::max(value, row.max_error("forward"));
    gradient = std::max(gradient, row.max_error("forward_backward"));
    decoding = std::max({decoding, row.max_error("prefill"), row.max_error("decode")});
  }
  const auto [agree, unsupported, unverified, failed] = counts;
  auto text = fmt::format("{} of {} {} with the reference, {} {}", agree, count_of(agree + unverified + failed, "supported row"),
                          agree == 1 ? "agrees" : "agree", failed, failed == 1 ? "disagrees" : "disagree");
  if (unverified > 0)
    text += fmt::format(", {} {} unverified (the method has no reference; --like names one)", unverified, is_or_are(unverified));
  text += fmt::format("; {} {} unsupported", count_of(unsupported, "row"), is_or_are(unsupported));
  if (agree > 0)
    text += fmt::format("; the largest errors of those that agree: values {}, gradients {}, decoding {}", error_text(value),
                        error_text(gradient), error_text(decoding));
  return text + "; --verbose shows every row";
}

// In text and Markdown the rows that disagree and a summary or, if `verbose`, all rows; in other formats always all.
void print_rows(const std::vector<VerifiedRow>& rows, Format format, bool verbose) {
  const bool is_summed_up = !verbose && (format == Format::text || format == Format::markdown);
  TextTable table({"method", "dtype", "causal", "key lengths", right("value error"), right("gradient error"),
                   right("decoding error"), right("accepted"), "verdict"},
                  {.answers = {"method", "verdict"},
                   .kept = {"dtype", "causal", "key lengths"},
                   .left_out_first = {"decoding error", "gradient error", "value error", "accepted"}});
  const auto names = format == Format::text || format == Format::markdown ? names_of(rows) : MethodNames();
  auto json = Json::array();
  for (const auto& row : rows) {
    if (!row.is_complete()) continue;
    const auto verdict = row.verdict();
    const auto& first = row.records.front();
    const double tolerance = first.has("error_tolerance") ? first.number("error_tolerance") : -1;
    const auto value = row.max_error("forward"), gradient = row.max_error("forward_backward"),
               decoding = std::max(row.max_error("prefill"), row.max_error("decode"));
    if (is_summed_up && !row.failed()) continue;
    table.add_row({names.of(row.method), row.dtype, row.causal ? "yes" : "no", row.key_lengths, error_text(value),
                   error_text(gradient), error_text(decoding), error_text(tolerance), verdict},
                  row.failed()        ? Tone::bad
                  : row.unsupported() ? Tone::faint
                                      : Tone::plain);
    json.push_back({{"method", row.method},
                    {"dtype", row.dtype},
                    {"causal", row.causal},
                    {"key_lengths", row.key_lengths},
                    {"value_error", error_json(value)},
                    {"gradient_error", error_json(gradient)},
                    {"decoding_error", error_json(decoding)},
                    {"error_tolerance", error_json(tolerance)},
                    {"verdict", verdict},
                    {"failed_case", row.failed_case()}});
  }
  if (format == Format::json) return print_json(json);
  const bool any_disagrees =
      std::any_of(rows.begin(), rows.end(), [](const VerifiedRow& row) { return row.is_complete() && row.failed(); });
  if (!is_summed_up || any_disagrees) print_table(table, format);
  if (!is_summed_up) return;
  if (format == Format::markdown && any_disagrees) fmt::print("\n");
  if (format == Format::markdown) fmt::print("{}\n", summary_of(rows));
  else print_paragraph(summary_of(rows));
}

int run_verify(const WorkerProgram& worker, const VerifyOptions& options) {
  const auto catalogue = Catalogue::load(worker);
  auto methods = options.methods.empty() ? catalogue.names() : options.methods;
  for (auto& method : methods) method = catalogue.with_like(method, options.like);
  std::vector<std::string> unique;
  for (auto& method : methods)
    if (std::find(unique.begin(), unique.end(), method) == unique.end()) unique.push_back(std::move(method));
  auto rows = rows_to_verify(unique, options.device, options.quick);

  // Threads that spin while they wait for each other would make the small cases twenty times slower on a busy machine.
  setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0);
  try {
    VerifyProgress progress(rows, unique.size(), options.quiet);
    verify_rows(worker, rows, {.one_worker = options.quick, .deadline_s = options.deadline_s},
                {.begins = [&](const VerifiedRow& row) { progress.show(row); },
                 .has_ended = [&](const std::string& method) { progress.report(method); }});
  } catch (const Interrupted&) {
    print_rows(rows, options.format, options.verbose);
    std::fflush(stdout);
    const auto complete = std::count_if(rows.begin(), rows.end(), [](const VerifiedRow& row) { return row.is_complete(); });
    print_notice(fmt::format("interrupted: {} of {} {} verified\n", complete, count_of(rows.size(), "row"), is_or_are(complete)));
    throw;
  }
  // A machine without a GPU must not look like one on which everything agrees.
  if (options.device != "cpu" && std::all_of(rows.begin(), rows.end(), [](const VerifiedRow& row) { return row.unsupported(); }))
    throw UsageError(
        fmt::format("nothing was verified on device {}: {}", options.device, rows.front().records.front().text("reason")));
  print_rows(rows, options.format, options.verbose);
  if (options.quick && !options.quiet) print_notice(fmt::format("{}\n", kLeftOutOfQuick));
  return std::any_of(rows.begin(), rows.end(), [](const VerifiedRow& row) { return row.failed(); }) ? exit_code::failure
                                                                                                    : exit_code::success;
}

}  // namespace

Run add_verify_command(Command& command) {
  const auto options = std::make_shared<VerifyOptions>();
  command.add("methods", &options->methods, "methods to verify",
              {.default_text = "every method", .completion = Completion::methods});
  add_like_option(command, options->like);
  command.add("--device", &options->device, "device on which the methods run", {.choices = {"cpu", "cuda"}});
  command.add("--quick", &options->quick, "verify only float32, and no sequences of 300 positions");
  command.add(
      "--deadline", &options->deadline_s,
      "after so long a worker is ended, and the case that it verifies has failed; without --quick each method has its own worker",
      {.unit = "s", .min = 1, .max = 86400});
  add_format_option(command, options->format);
  add_quiet_option(command, options->quiet);
  command.add("--verbose", &options->verbose, "show the rows that agree and the unsupported ones, too", {.short_name = "-v"});
  command.add_example("verify --quick", "compares every method with the float64 reference in a few seconds");
  command.add_example("verify linear lsh:rounds=4 --device cuda",
                      "verifies two methods in every dtype and shape on the first visible GPU");
  return [options](const WorkerProgram& worker) { return run_verify(worker, *options); };
}

}  // namespace attnbench
