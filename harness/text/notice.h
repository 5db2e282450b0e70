// Prints text for people to a stream that may be unable to take it. An error of the stream is ignored, since a terminal that is
// gone or full must not stop a measurement.
#pragma once

#include <cstdio>
#include <exception>
#include <string_view>

namespace attnbench {

// Writes the text as safe_text() with line ends, leaves out the middle of lines longer than 2,000 bytes, and flushes the stream.
void print_notice(std::string_view text, FILE* out = stderr);
// Writes the message of an error that ends a command, and flushes standard error.
void print_error(const std::exception& error);
// Writes text that is safe already and may hold escape codes of this program, and flushes the stream.
void print_styled(std::string_view text, FILE* out);

}  // namespace attnbench
