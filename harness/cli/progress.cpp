#include "harness/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>

#include "harness/cli/record_table.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string name_of(const Record& record) {
  return fmt::format("{} {} N={}{}", record.text("method"), record.text("protocol"), record.get("query_len").dump(),
                     record.get("causal") == true ? " causal" : "");
}

// The first `width` characters.
std::string shortened(const std::string& text, size_t width) {
  size_t shown = 0;
  for (size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80 && ++shown > width) return text.substr(0, i);
  return text;
}

}  // namespace

Progress::Progress(size_t cases, Verbosity verbosity, FILE* out)
    : cases_(cases), verbosity_(verbosity), out_(out), terminal_(isatty(fileno(out)) != 0), began_s_(now_s()) {}

Progress::~Progress() {
  if (terminal_ && verbosity_ != Verbosity::quiet) rewrite("");
}

void Progress::starting(size_t number, const Record& planned, double rest_s) {
  if (verbosity_ == Verbosity::quiet || !terminal_) return;
  rewrite(fmt::format("case {} of {}  {}  elapsed {}  rest ~{}{}", number, cases_, name_of(planned),
                      format_seconds(now_s() - began_s_), format_seconds(rest_s),
                      last_result_.empty() ? "" : "  last: " + last_result_));
}

void Progress::finished(size_t number, const Record& record) {
  last_result_ = result_in_words(record);
  for (auto& c : last_result_)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  if (verbosity_ == Verbosity::quiet) return;
  if (terminal_ && verbosity_ == Verbosity::normal) return;
  if (terminal_) rewrite("");
  fmt::print(out_, "[{}/{}] {}  {}\n", number, cases_, name_of(record), last_result_);
  if (verbosity_ == Verbosity::verbose && record.measured())
    fmt::print(out_, "        {}, {} samples of {} call(s), stopped by {}, relative error {:.1e}, {:.2f} s in all\n",
               record.text("implementation"), record.get("samples").dump(), record.get("calls_per_sample").dump(),
               record.text("stop_reason"), record.number("max_rel_error"), record.number("worker_s"));
  std::fflush(out_);
}

void Progress::rewrite(const std::string& line) {
  winsize size{};
  const size_t width = ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  fmt::print(out_, "\r\x1b[2K{}", shortened(line, width - 1));
  std::fflush(out_);
}

}  // namespace attnbench
