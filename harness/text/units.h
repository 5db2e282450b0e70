// Formats times and amounts of memory for people, and parses amounts of memory.
#pragma once

#include <cstdint>
#include <string>

namespace attnbench {

std::string format_ms(double ms);        // "12.3 µs", "4.56 ms", "7.89 s"; "–" for NaN
std::string format_bytes(double bytes);  // "12.3 MiB"; "–" for NaN
std::string format_seconds(double s);    // "42 s", "3 min 07 s", "2 h 05 min"; "–" for NaN, negative and huge values

// The number of bytes in text such as "11 GiB", "500MB" or "4096". Throws std::invalid_argument that quotes any other text.
int64_t parse_bytes(const std::string& text);

// The width of UTF-8 text in a table, where each code point counts as one column.
size_t display_width(const std::string& text);

}  // namespace attnbench
