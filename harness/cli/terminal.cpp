#include "harness/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "harness/text/notice.h"
#include "harness/text/safe_text.h"

namespace attnbench {
namespace {

// The first `width` characters.
std::string shortened(const std::string& text, size_t width) {
  size_t shown = 0;
  for (size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80 && ++shown > width) return text.substr(0, i);
  return text;
}

std::string_view environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

bool is_terminal(FILE* out) { return isatty(fileno(out)) != 0; }

bool rewrites_lines(FILE* out) { return is_terminal(out) && environment_variable("TERM") != "dumb"; }

bool shows_colours(FILE* out) { return rewrites_lines(out) && environment_variable("NO_COLOR").empty(); }

std::string toned(const std::string& text, Tone tone, FILE* out) { return shows_colours(out) ? coloured(text, tone) : text; }

void StatusLine::show(const std::string& text) {
  if (quiet_ || !rewrites_) return;
  winsize size{};
  const size_t width = ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  print_styled("\r\x1b[2K" + shortened(safe_text(text), width - 1), out_);
}

void StatusLine::print(const std::string& text, Tone tone) {
  if (quiet_) return;
  show("");
  print_styled(toned(safe_text(text, LineEnds::kept), tone, out_) + "\n", out_);
}

}  // namespace attnbench
