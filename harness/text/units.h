// Formats times, amounts of memory and numbers of things for people, and parses amounts of memory.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace attnbench {

// "12.3 µs", "4.56 ms", "7.89 s", with so many digits, and all those before the decimal point; "–" for NaN
std::string format_ms(double ms, int digits = 3);
std::string format_bytes(double bytes);  // "12.3 MiB"; "–" for NaN
std::string format_seconds(double s);    // "42 s", "3 min 07 s", "2 h 05 min"; "–" for NaN, negative and huge values

// A number of at least 0 with three significant digits: "1.23", "45.6", "789" and "1,230,000"; "–" for NaN.
std::string format_rounded(double value);

// The singular "case" or "process" for one thing, and its plural "cases" or "processes" otherwise.
std::string singular_or_plural(bool is_one, std::string_view singular);
// "1 case", "2 cases", "0 processes": how many things there are that a noun names, which is given in the singular.
template <std::integral Count>
std::string count_of(Count count, std::string_view singular) {
  return std::to_string(count) + " " + singular_or_plural(count == 1, singular);
}
// The form of the verb that fits the count.
const char* is_or_are(std::integral auto count) { return count == 1 ? "is" : "are"; }
const char* has_or_have(std::integral auto count) { return count == 1 ? "has" : "have"; }

// The number of bytes in text such as "11 GiB", "500MB" or "4096". Throws std::invalid_argument that quotes any other text.
int64_t parse_bytes(const std::string& text);

// The number of columns of a terminal that UTF-8 text without control characters takes, as columns_of() in utf8.h counts them.
size_t display_width(const std::string& text);
// UTF-8 text of at most `width` columns: if the text has more, "…" takes the place of the end that does not fit.
std::string shortened(const std::string& text, size_t width);
// UTF-8 text with line ends in place of spaces, so that no line is wider than `width` columns unless a single word is. The
// lines after the first begin with `indent` spaces, and the first one is taken to begin after as many characters.
std::string wrapped(const std::string& text, size_t width, size_t indent = 0);

}  // namespace attnbench
