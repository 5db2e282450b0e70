// Finds out what a stream can show (lines that are rewritten, colours), and prints progress accordingly.
#pragma once

#include <cstdio>
#include <string>

#include "harness/text/text_table.h"

namespace attnbench {

bool is_terminal(FILE* out);
// Whether a line on the stream can be rewritten: it is a terminal that understands escape codes (TERM is not "dumb").
bool rewrites_lines(FILE* out);
// Whether the stream shows colours: lines on it can be rewritten, and NO_COLOR is unset or empty (https://no-color.org).
bool shows_colours(FILE* out);
// The width that tables on the stream must fit into: that in the environment variable COLUMNS, or otherwise that of the terminal.
// 0, which stands for any width, if the stream is no terminal.
size_t table_width(FILE* out);
// `text` in the colour of the tone, if the stream shows colours.
std::string toned(const std::string& text, Tone tone, FILE* out);

// The last line of a stream, which shows what happens now and is rewritten. Where lines cannot be rewritten, show() prints
// nothing. If `quiet`, print() prints nothing either. The destructor clears the line.
class StatusLine {
 public:
  StatusLine(FILE* out, bool quiet) : out_(out), quiet_(quiet), rewrites_(rewrites_lines(out)) {}
  ~StatusLine() { show(""); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool rewrites() const { return rewrites_; }
  // Replaces the line by as much of this text as fits into the terminal's width.
  void show(const std::string& text);
  // Prints a line above the status line, in the colour of the tone. It is not rewritten.
  void print(const std::string& text, Tone tone = Tone::plain);

 private:
  FILE* out_;
  bool quiet_, rewrites_;
};

}  // namespace attnbench
