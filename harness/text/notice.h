// Prints text for people to a stream that may be unable to take it.
#pragma once

#include <cstdio>
#include <string_view>

namespace attnbench {

// Writes the text and flushes the stream. Does nothing about an error: a terminal that is gone or full must not stop a
// measurement.
void print_notice(std::string_view text, FILE* out = stderr);

}  // namespace attnbench
