// Asks the system and the environment what a stream can show, and rewrites the status line.
#include "harness/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "harness/text/notice.h"
#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

std::string_view environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

// The width that the terminal reports, or 80 if it reports none.
size_t reported_width(FILE* terminal) {
  winsize size{};
  return ioctl(fileno(terminal), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

bool is_terminal(FILE* out) { return isatty(fileno(out)) != 0; }

bool rewrites_lines(FILE* out) { return is_terminal(out) && environment_variable("TERM") != "dumb"; }

bool shows_colours(FILE* out) { return rewrites_lines(out) && environment_variable("NO_COLOR").empty(); }

size_t table_width(FILE* out) {
  if (!is_terminal(out)) return 0;
  const auto columns = environment_variable("COLUMNS");
  size_t width = 0;
  const auto [end, error] = std::from_chars(columns.data(), columns.data() + columns.size(), width);
  const bool is_number = error == std::errc() && end == columns.data() + columns.size();
  return is_number && width > 0 ? width : reported_width(out);
}

std::string toned(const std::string& text, Tone tone, FILE* out) { return shows_colours(out) ? coloured(text, tone) : text; }

void StatusLine::show(const std::string& text) {
  if (quiet_ || !rewrites_) return;
  print_styled("\r\x1b[2K" + shortened(safe_text(text), reported_width(out_) - 1), out_);
}

void StatusLine::print(const std::string& text, Tone tone) {
  if (quiet_) return;
  show("");
  print_styled(toned(safe_text(text, LineEnds::kept), tone, out_) + "\n", out_);
}

}  // namespace attnbench
