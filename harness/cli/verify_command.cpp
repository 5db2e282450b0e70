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
#include "harness/schema/record.h"
#include "harness/sweep/case_runner.h"
#include "harness/sweep/catalogue.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"
#include "harness/text/units.h"

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

struct Shape {
  int64_t batch, heads, query_len, key_len, head_dim, value_dim;
  int64_t kv_heads = heads, value_heads = kv_heads;
};
// The shapes that are verified: lengths that are no multiple of a chunk, a vector or a warp; a single position; unequal head_dim
// and value_dim; cross attention; heads that share keys and values; and a length for kernels that take whole blocks only. The
// counts of heads differ from the batch sizes, so that no formula in which one is confused with another agrees by chance. --quick
// leaves out the first.
constexpr Shape kShapes[] = {{2, 3, 300, 300, 64, 64}, {1, 5, 1, 1, 32, 32},     {2, 3, 129, 129, 24, 40},
                             {2, 5, 65, 190, 32, 16},  {1, 3, 256, 256, 32, 32}, {2, 6, 70, 70, 24, 16, /*kv_heads=*/3}};
// Inputs that make a careless implementation lose digits. They are verified in calls of this many positions.
constexpr const char* kHardInputs[] = {"offset", "scaled", "outliers"};
constexpr int64_t kHardInputsLength = 129;
constexpr auto kLeftOut =
    "--quick left out float64, bfloat16, sequences of 300 positions, and inputs with means, scales and outliers";

// One row of the table: the cases that it sums up, and the records of those that were verified so far.
struct Row {
  std::string method, dtype;
  bool causal;
  std::string key_lengths;
  std::vector<Case> cases = {};
  std::vector<Record> records = {};

  bool is_complete() const { return records.size() == cases.size(); }
  // The largest error that counts, over the records of a protocol. Negative if none has one.
  double max_error(const char* protocol) const {
    double max = -1;
    for (const auto& record : records)
      if (record.text("protocol") == protocol && record.has("excess_error")) max = std::max(max, record.number("excess_error"));
    return max;
  }
  bool failed() const {
    return std::any_of(records.begin(), records.end(), [](const Record& r) { return r.text("outcome") == outcome::failed; });
  }
  bool unsupported() const {
    return !failed() && std::none_of(records.begin(), records.end(), [](const Record& r) { return r.measured(); });
  }
  // The axes of the first case that failed; null if none did.
  Json failed_case() const {
    for (const auto& record : records) {
      if (record.text("outcome") != outcome::failed) continue;
      auto axes = Json::object();
      for (const auto& name : axis_names()) axes[name] = record.get(name);
      return axes;
    }
    return nullptr;
  }
  bool unverified() const {
    return std::any_of(records.begin(), records.end(), [](const Record& r) { return r.get("unverified") == true; });
  }
  std::string verdict() const {
    for (const auto& record : records)
      if (record.text("outcome") == outcome::failed)
        return fmt::format(
            "{} at N={}, {}{}: {}", record.text("failure_kind"), record.get("query_len").dump(), record.text("protocol"),
            record.text("inputs") == "normal" ? "" : fmt::format(", inputs {}", record.text("inputs")), record.text("reason"));
    if (unsupported()) return "unsupported: " + records.front().text("reason");
    return unverified() ? "unverified: the method has no reference; --like names one" : "agrees";
  }
};

// The names of the methods whose cases were verified so far.
MethodNames names_of(const std::vector<Row>& rows) {
  std::vector<const Record*> records;
  for (const auto& row : rows)
    for (const auto& record : row.records) records.push_back(&record);
  return MethodNames(records);
}

std::vector<const char*> inputs_of(const Row& row, const Shape& shape, const std::string& protocol) {
  std::vector<const char*> inputs = {"normal"};
  const bool is_call = protocol == "forward" || protocol == "forward_backward";
  if (is_call && shape.query_len == kHardInputsLength && row.key_lengths != "0")
    inputs.insert(inputs.end(), std::begin(kHardInputs), std::end(kHardInputs));
  return inputs;
}

std::vector<Case> cases_of(const Row& row, const std::string& device, bool quick) {
  std::vector<const char*> protocols = {"forward", "forward_backward"};
  if (row.causal && row.key_lengths == "full") protocols.insert(protocols.end(), {"prefill", "decode"});
  std::vector<Case> cases;
  for (const auto& shape : kShapes) {
    if (quick && &shape == kShapes) continue;
    for (const auto* protocol : protocols)
      for (const auto* inputs : quick ? std::vector<const char*>{"normal"} : inputs_of(row, shape, protocol)) {
        Case c;
        c.method = row.method;
        c.dtype = row.dtype;
        c.device = device;
        c.causal = row.causal;
        c.key_lengths = row.key_lengths;
        c.protocol = protocol;
        c.inputs = inputs;
        c.batch = shape.batch;
        c.heads = shape.heads;
        c.kv_heads = shape.kv_heads;
        c.value_heads = shape.value_heads;
        c.query_len = shape.query_len;
        c.key_len = shape.key_len;
        c.head_dim = shape.head_dim;
        c.value_dim = shape.value_dim;
        c.complete();
        cases.push_back(c);
      }
  }
  return cases;
}

std::vector<Row> rows_for(const std::vector<std::string>& methods, const std::string& device, bool quick) {
  std::vector<const char*> dtypes = {"float32"};
  if (!quick) dtypes.insert(dtypes.end(), {"float64", "bfloat16"});
  std::vector<Row> rows;
  for (const auto& method : methods)
    for (const auto* dtype : dtypes)
      for (const bool causal : {false, true})
        for (const auto* key_lengths : {"full", "uniform", "0"}) {
          rows.push_back({method, dtype, causal, key_lengths});
          rows.back().cases = cases_of(rows.back(), device, quick);
        }
  return rows;
}

// Verifies the cases of all rows, and shows the progress. The rows of one method must stand together.
class Verification {
 public:
  // With --quick, one worker verifies every method, because the start of a worker takes longer than the few cases of a method.
  // Otherwise each method has a worker of its own.
  Verification(const WorkerProgram& worker, std::vector<Row>& rows, size_t methods, const VerifyOptions& options)
      : worker_(worker),
        rows_(rows),
        methods_(methods),
        quick_(options.quick),
        deadline_s_(options.deadline_s),
        line_(stderr, options.quiet) {}

  void run() {
    while (row_ < rows_.size()) {
      auto request = Json::array();
      for (size_t i = row_; i < rows_.size() && (quick_ || rows_[i].method == rows_[row_].method); ++i)
        for (size_t n = i == row_ ? rows_[i].records.size() : 0; n < rows_[i].cases.size(); ++n)
          request.push_back(to_json(rows_[i].cases[n]));
      show_next();
      unanswered_ = request.size();
      const auto expected = unanswered_;
      const auto answer = run_worker(worker_, "verify", request, deadline_s_, [this](const Json& line) {
        if (unanswered_ > 0) take(line);
      });
      if (unanswered_ > 0) give_up(answer, expected);
    }
  }

 private:
  const Case& next_case() const { return rows_[row_].cases[rows_[row_].records.size()]; }

  void take(const Json& line) {
    Record record(next_case());
    take_line(record, line);
    add(std::move(record));
  }

  // Called if the worker ended before it answered everything. The case that it was verifying failed, and the later cases of the
  // same method are not tried.
  void give_up(const WorkerAnswer& answer, size_t expected) {
    const auto method = rows_[row_].method;
    const auto* const failure = failure_kind(answer);
    auto reason = fault_of(answer, expected);
    while (row_ < rows_.size() && rows_[row_].method == method) {
      Record record(next_case());
      record.set_failed(failure, reason);
      add(std::move(record));
      reason = "not verified, because the worker ended at an earlier case of the method";
    }
  }

  void add(Record record) {
    auto& row = rows_[row_];
    row.records.push_back(std::move(record));
    --unanswered_;
    if (!row.is_complete()) return;
    ++row_;
    if (row_ == rows_.size() || rows_[row_].method != row.method) report_method(row.method);
    if (row_ < rows_.size()) show_next();
  }

  void show_next() {
    const auto& row = rows_[row_];
    line_.show(fmt::format("verifying {} ({} of {}), {}, {}, key lengths {}", row.method, reported_ + 1, methods_, row.dtype,
                           row.causal ? "causal" : "not causal", row.key_lengths));
  }

  void report_method(const std::string& method) {
    size_t agree = 0, unsupported = 0, unverified = 0, failed = 0;
    for (const auto& row : rows_)
      if (row.method == method)
        ++(row.failed() ? failed : row.unsupported() ? unsupported : row.unverified() ? unverified : agree);
    ++reported_;
    if (line_.rewrites() && failed == 0) return;
    line_.print(fmt::format("[{}/{}] {}: {} {}, {} unsupported{}{}", reported_, methods_, names_of(rows_).of(method),
                            count_of(agree, "row"), agree == 1 ? "agrees" : "agree", unsupported,
                            unverified > 0 ? fmt::format(", {} unverified", unverified) : "",
                            failed > 0 ? fmt::format(", {} FAILED", failed) : ""),
                failed > 0 ? Tone::bad : Tone::plain);
  }

  const WorkerProgram& worker_;
  std::vector<Row>& rows_;
  size_t methods_;
  bool quick_;
  double deadline_s_;
  StatusLine line_;
  size_t row_ = 0;         // index of the first row that is not complete
  size_t unanswered_ = 0;  // number of cases that the running worker has not answered
  size_t reported_ = 0;    // number of methods that are done
};

std::string error_text(double error) { return error < 0 ? "–" : fmt::format("{:.1e}", error); }
Json error_json(double error) { return error < 0 ? Json() : Json(error); }

// How many rows agree, how large their errors are, and how many do not agree.
std::string summary_of(const std::vector<Row>& rows) {
  size_t agree = 0, unsupported = 0, unverified = 0, failed = 0;
  double value = -1, gradient = -1, decoding = -1;
  for (const auto& row : rows) {
    if (!row.is_complete()) continue;
    ++(row.failed() ? failed : row.unsupported() ? unsupported : row.unverified() ? unverified : agree);
    if (row.failed()) continue;
    value = std::max(value, row.max_error("forward"));
    gradient = std::max(gradient, row.max_error("forward_backward"));
    decoding = std::max({decoding, row.max_error("prefill"), row.max_error("decode")});
  }
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
void print_rows(const std::vector<Row>& rows, Format format, bool verbose) {
  const bool is_summed_up = !verbose && (format == Format::text || format == Format::markdown);
  TextTable table;
  table.answer_with({"method", "verdict"});
  table.keep({"dtype", "causal", "key lengths"});
  table.leave_out_first({"decoding error", "gradient error", "value error", "accepted"});
  for (const auto* header : {"method", "dtype", "causal", "key lengths"}) table.add_column(header);
  for (const auto* header : {"value error", "gradient error", "decoding error", "accepted"})
    table.add_column(header, TextTable::Align::right);
  table.add_column("verdict");
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
      std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.is_complete() && row.failed(); });
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
  auto rows = rows_for(unique, options.device, options.quick);

  // Threads that spin while they wait for each other would make the small cases twenty times slower on a busy machine.
  setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0);
  try {
    Verification(worker, rows, unique.size(), options).run();
  } catch (const Interrupted&) {
    print_rows(rows, options.format, options.verbose);
    std::fflush(stdout);
    const auto complete = std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.is_complete(); });
    print_notice(fmt::format("interrupted: {} of {} {} verified\n", complete, count_of(rows.size(), "row"), is_or_are(complete)));
    throw;
  }
  // A machine without a GPU must not look like one on which everything agrees.
  if (options.device != "cpu" && std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.unsupported(); }))
    throw UsageError(
        fmt::format("nothing was verified on device {}: {}", options.device, rows.front().records.front().text("reason")));
  print_rows(rows, options.format, options.verbose);
  if (options.quick && !options.quiet) print_notice(fmt::format("{}\n", kLeftOut));
  return std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.failed(); }) ? exit_code::failure
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
  add_former_format_flag(command, options->format, Format::json);
  add_quiet_option(command, options->quiet);
  command.add("--verbose", &options->verbose, "show the rows that agree and the unsupported ones, too", {.short_name = "-v"});
  command.add_example("verify --quick", "compares every method with the float64 reference in a few seconds");
  command.add_example("verify linear lsh:rounds=4 --device cuda",
                      "verifies two methods in every dtype and shape on the first visible GPU");
  return [options](const WorkerProgram& worker) { return run_verify(worker, *options); };
}

}  // namespace attnbench
