// Chooses units and digits, and reads amounts of memory back.
#include "harness/text/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "harness/text/utf8.h"

namespace attnbench {
namespace {

constexpr auto kMissing = "–";

// So many digits, and all those before the decimal point.
std::string with_digits(double value, int digits) {
  if (value == 0) return "0";
  int decimals = digits - 1;
  // A value that would be rounded up to 10, 100 and so on has one digit more before the point.
  for (double bound = 10; decimals > 0 && value >= bound - 0.5 * std::pow(10, -decimals); bound *= 10) --decimals;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace

std::string format_ms(double ms, int digits) {
  if (std::isnan(ms)) return kMissing;
  if (ms < 1) return with_digits(ms * 1e3, digits) + " µs";
  return ms < 1e3 ? with_digits(ms, digits) + " ms" : with_digits(ms / 1e3, digits) + " s";
}

std::string format_bytes(double bytes) {
  if (std::isnan(bytes)) return kMissing;
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.size(); ++unit) bytes /= 1024;
  return (unit == 0 ? fmt::format("{:.0f}", bytes) : with_digits(bytes, 3)) + " " + units[unit];
}

std::string format_seconds(double s) {
  if (!(s >= 0) || s > 1e8) return kMissing;
  const auto whole = int64_t(std::lround(s));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string format_rounded(double value) {
  if (std::isnan(value)) return kMissing;
  if (value < 1e3) return value > 0 && value < 0.1 ? fmt::format("{:.2g}", value) : with_digits(value, 3);
  const auto unit = std::pow(10.0, std::floor(std::log10(value)) - 2);
  auto text = fmt::format("{:.0f}", std::round(value / unit) * unit);
  for (auto at = std::ptrdiff_t(text.size()) - 3; at > 0; at -= 3) text.insert(size_t(at), ",");
  return text;
}

std::string singular_or_plural(bool is_one, std::string_view singular) {
  const bool hisses = singular.ends_with('s') || singular.ends_with('x') || singular.ends_with("ch");
  return fmt::format("{}{}", singular, is_one ? "" : hisses ? "es" : "s");
}

int64_t parse_bytes(const std::string& text) {
  constexpr std::array<std::pair<const char*, double>, 10> units{{{"", 1},
                                                                  {"B", 1},
                                                                  {"kB", 1e3},
                                                                  {"MB", 1e6},
                                                                  {"GB", 1e9},
                                                                  {"TB", 1e12},
                                                                  {"KiB", 0x1p10},
                                                                  {"MiB", 0x1p20},
                                                                  {"GiB", 0x1p30},
                                                                  {"TiB", 0x1p40}}};
  try {
    size_t used = 0;
    const double number = std::stod(text, &used);
    const auto begin = text.find_first_not_of(' ', used);
    const auto unit = begin == std::string::npos ? std::string() : text.substr(begin);
    for (const auto& [name, factor] : units)
      if (unit == name && number >= 1 && number * factor < 9e18) return int64_t(number * factor);
  } catch (const std::logic_error&) {
  }
  throw std::invalid_argument(
      fmt::format("'{}' is not an amount of memory such as \"11 GiB\", \"500 MB\" or a number of bytes", text));
}

size_t display_width(const std::string& text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size();) {
    const auto [value, bytes] = code_point_at(text, i);
    width += columns_of(value);
    i += bytes;
  }
  return width;
}

std::string shortened(const std::string& text, size_t width) {
  if (display_width(text) <= width) return text;
  if (width == 0) return "";
  // One column is left for the ellipsis.
  size_t end = 0;
  for (size_t shown = 0; end < text.size();) {
    const auto [value, bytes] = code_point_at(text, end);
    shown += columns_of(value);
    if (shown >= width) break;
    end += bytes;
  }
  return text.substr(0, end) + "…";
}

std::string wrapped(const std::string& text, size_t width, size_t indent) {
  std::string lines;
  size_t column = indent;
  for (size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find(' ', begin), text.size());
    const auto word = text.substr(begin, end - begin);
    const auto width_of_word = display_width(word);
    if (column > indent && column + 1 + width_of_word > width) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += width_of_word;
    begin = end + 1;
  }
  return lines;
}

}  // namespace attnbench
