// What a stream can show: a line that rewrites itself where it is a terminal, and colours where the user wants them.
#pragma once

#include <cstdio>
#include <string>

#include "harness/text/text_table.h"

namespace attnbench {

bool is_terminal(FILE* out);
// Whether the stream is a terminal that understands escape codes, so that a line on it can be rewritten: TERM is not "dumb".
bool rewrites_lines(FILE* out);
// Whether the stream also shows colours: NO_COLOR is unset or empty (https://no-color.org).
bool shows_colours(FILE* out);
// `text` in the colour of the tone, if the stream shows colours.
std::string toned(const std::string& text, Tone tone, FILE* out);

// One line at the end of a stream that tells what happens now. Where lines cannot be rewritten, only the lines that stay are
// printed, and when it is quiet nothing is.
class StatusLine {
 public:
  StatusLine(FILE* out, bool quiet) : out_(out), quiet_(quiet), rewrites_(rewrites_lines(out)) {}
  ~StatusLine() { show(""); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool rewrites() const { return rewrites_; }
  // Replaces the line by this text, as much of it as fits into the terminal's width.
  void show(const std::string& text);
  // Prints a line that stays, in the colour of the tone.
  void print(const std::string& text, Tone tone = Tone::plain);

 private:
  FILE* out_;
  bool quiet_, rewrites_;
};

}  // namespace attnbench
