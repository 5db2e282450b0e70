// Quantities as text for people, with three significant digits and a unit, and back.
#pragma once

#include <cstdint>
#include <string>

namespace attnbench {

std::string format_ms(double ms);        // "12.3 µs", "4.56 ms", "7.89 s"; "–" for NaN
std::string format_bytes(double bytes);  // "12.3 MiB"; "–" for NaN
std::string format_seconds(double s);    // "42 s", "3 min 07 s", "2 h 05 min"

// A number of bytes from text such as "11 GiB", "500MB" or "4096". Throws std::invalid_argument naming the text.
int64_t parse_bytes(const std::string& text);

// How many characters a terminal shows for UTF-8 text; used for padding.
size_t display_width(const std::string& text);

}  // namespace attnbench
