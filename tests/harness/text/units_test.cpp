// Tests of writing quantities with their units, and of parsing amounts of memory.
#include "harness/text/units.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "tests/support/errors_of.h"

namespace attnbench {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Units, FormatMs) {
  EXPECT_EQ(format_ms(0), "0 µs");
  EXPECT_EQ(format_ms(0.0123), "12.3 µs");
  EXPECT_EQ(format_ms(0.5), "500 µs");
  EXPECT_EQ(format_ms(1), "1.00 ms");
  EXPECT_EQ(format_ms(4.564), "4.56 ms");
  EXPECT_EQ(format_ms(9.996), "10.0 ms");
  EXPECT_EQ(format_ms(99.96), "100 ms");
  EXPECT_EQ(format_ms(345.4), "345 ms");
  EXPECT_EQ(format_ms(1000), "1.00 s");
  EXPECT_EQ(format_ms(7890), "7.89 s");
  EXPECT_EQ(format_ms(123456), "123 s");
  EXPECT_EQ(format_ms(kNan), "–");
  EXPECT_EQ(format_ms(4.5644, 4), "4.564 ms");
  EXPECT_EQ(format_ms(9.9996, 4), "10.00 ms");
  EXPECT_EQ(format_ms(345.42, 4), "345.4 ms");
  EXPECT_EQ(format_ms(1234567, 4), "1235 s");
}

TEST(Units, FormatRounded) {
  EXPECT_EQ(format_rounded(0), "0");
  EXPECT_EQ(format_rounded(0.0123), "0.012");
  EXPECT_EQ(format_rounded(1.234), "1.23");
  EXPECT_EQ(format_rounded(45.67), "45.7");
  EXPECT_EQ(format_rounded(789.1), "789");
  EXPECT_EQ(format_rounded(1234), "1,230");
  EXPECT_EQ(format_rounded(1'239'000), "1,240,000");
  EXPECT_EQ(format_rounded(999'999), "1,000,000");
  EXPECT_EQ(format_rounded(kNan), "–");
}

TEST(Units, CountOf) {
  EXPECT_EQ(count_of(1, "case"), "1 case");
  EXPECT_EQ(count_of(size_t{0}, "case"), "0 cases");
  EXPECT_EQ(count_of(2, "process"), "2 processes");
  EXPECT_EQ(count_of(int64_t{1}, "process"), "1 process");
  EXPECT_EQ(count_of(3, "match"), "3 matches");
  EXPECT_EQ(count_of(2, "more row"), "2 more rows");
  EXPECT_STREQ(is_or_are(1), "is");
  EXPECT_STREQ(is_or_are(0), "are");
  EXPECT_STREQ(has_or_have(1), "has");
  EXPECT_STREQ(has_or_have(2), "have");
}

TEST(Units, FormatBytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(12.34 * 1024 * 1024), "12.3 MiB");
  EXPECT_EQ(format_bytes(11.0 * (int64_t{1} << 30)), "11.0 GiB");
  EXPECT_EQ(format_bytes(0x1p63), "8.00 EiB");
  EXPECT_EQ(format_bytes(kNan), "–");
}

TEST(Units, FormatSeconds) {
  EXPECT_EQ(format_seconds(0.4), "0 s");
  EXPECT_EQ(format_seconds(42.4), "42 s");
  EXPECT_EQ(format_seconds(59.6), "1 min 00 s");
  EXPECT_EQ(format_seconds(187), "3 min 07 s");
  EXPECT_EQ(format_seconds(3600), "1 h 00 min");
  EXPECT_EQ(format_seconds(7500), "2 h 05 min");
  EXPECT_EQ(format_seconds(kNan), "–");
  EXPECT_EQ(format_seconds(-1), "–");
  EXPECT_EQ(format_seconds(std::numeric_limits<double>::infinity()), "–");
}

TEST(Units, ParseBytes) {
  EXPECT_EQ(parse_bytes("4096"), 4096);
  EXPECT_EQ(parse_bytes("4096 B"), 4096);
  EXPECT_EQ(parse_bytes("11 GiB"), int64_t{11} << 30);
  EXPECT_EQ(parse_bytes("11GiB"), int64_t{11} << 30);
  EXPECT_EQ(parse_bytes("1.5 KiB"), 1536);
  EXPECT_EQ(parse_bytes("500MB"), 500000000);
  EXPECT_EQ(parse_bytes("2 kB"), 2000);
  EXPECT_EQ(parse_bytes("3 TiB"), int64_t{3} << 40);
  for (const auto* text : {"", "GiB", "11 gib", "11 GiBs", "11 GiB 3", "-1 GiB", "0", "0.5", "nan", "inf", "inf GiB", "1e300",
                           "1e999", "99999999 TiB", "eleven"})
    EXPECT_EQ(message_of<std::invalid_argument>([&] { parse_bytes(text); }),
              fmt::format("'{}' is not an amount of memory such as \"11 GiB\", \"500 MB\" or a number of bytes", text));
}

TEST(Units, DisplayWidthCountsCharacters) {
  EXPECT_EQ(display_width(""), 0u);
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("µs–O(N²)"), 8u);
  EXPECT_EQ(display_width("注意"), 4u);
  EXPECT_EQ(display_width("cafe\u0301"), 4u) << "a combining accent";
  EXPECT_EQ(display_width("\xff"), 1u) << "not UTF-8";
}

TEST(Shortened, CutsByCharactersAndSaysSo) {
  EXPECT_EQ(shortened("O(N²)", 5), "O(N²)");
  EXPECT_EQ(shortened("O(N²) time", 5), "O(N²…");
  EXPECT_EQ(shortened("注意長", 5), "注意…");
  EXPECT_EQ(shortened("注意長", 4), "注…");
  EXPECT_EQ(shortened("abc", 1), "…");
  EXPECT_EQ(shortened("abc", 0), "");
}

TEST(Wrapped, BreaksLinesAtSpaces) {
  EXPECT_EQ(wrapped("one two three", 7), "one two\nthree");
  EXPECT_EQ(wrapped("one two three", 9, 2), "one two\n  three");
  EXPECT_EQ(wrapped("unbreakable word", 4), "unbreakable\nword");
  EXPECT_EQ(wrapped("", 4), "");
}

}  // namespace
}  // namespace attnbench
