// Implements the progress of a sweep: a line for each case, with the time that the rest will take.
#include "harness/cli/measuring/progress.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "harness/cli/rendering/record_table.h"
#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

// Why there are more processes than at first; empty if there are not.
std::string added_in_words(const SweepObserver::Place& place) {
  if (place.added == 0) return "";
  return fmt::format(" ({} added in place of {})", count_of(place.added, "process"),
                     place.added == 1 ? "a disturbed one" : "disturbed ones");
}

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

Progress::Progress(Verbosity verbosity, CaseNames names, FILE* out)
    : verbosity_(verbosity), names_(std::move(names)), line_(out, verbosity == Verbosity::quiet), began_s_(now_s()) {}

void Progress::starting(const Place& place, const Record& planned, double rest_s) {
  line_.show(fmt::format("process {} of {}{}  {}  elapsed {}  remaining ~{}{}", place.number, place.of, added_in_words(place),
                         names_.of(planned), format_seconds(now_s() - began_s_), format_seconds(rest_s),
                         last_result_.empty() ? "" : "  last: " + last_result_));
}

void Progress::finished(const Place& place, const Record& record) {
  last_result_ = safe_text(result_in_words(record));
  if (line_.rewrites() && verbosity_ == Verbosity::normal) return;
  auto text = fmt::format("[{}/{}] {}  {}", place.number, place.of, safe_text(names_.of(record)), last_result_);
  if (place.added > told_added_) text += " " + added_in_words(place);
  told_added_ = place.added;
  if (verbosity_ == Verbosity::verbose && record.measured())
    text += fmt::format("\n        {}, {} of {}, stopped by {}, relative error {:.1e}, {:.2f} s in all",
                        record.text("implementation"), count_of(int64_t(record.number("samples")), "sample"),
                        count_of(int64_t(record.number("calls_per_sample")), "call"), record.text("stop_reason"),
                        record.number("max_rel_error"), record.number("worker_s"));
  line_.print(text, tone_of(record));
}

}  // namespace attnbench
