// Tests of safe_text().
#include "harness/text/safe_text.h"

#include <gtest/gtest.h>

namespace attnbench {
namespace {

TEST(SafeText, OrdinaryTextStays) {
  for (const auto* text : {"", "plain", "µs · … ─ 漢字 \xF0\x9F\x98\x80",
                           "a\xC2\xA0"
                           "b"})
    EXPECT_EQ(safe_text(text), text);
}

TEST(SafeText, ControlCharactersAndMarksOfDirectionBecomeSpaces) {
  EXPECT_EQ(safe_text("a\x1b[31mb\x07"
                      "c\x7f"
                      "d\te\r"),
            "a [31mb c d e ");
  EXPECT_EQ(safe_text(std::string_view("a\0b", 3)), "a b");
  for (const auto* mark :
       {"\xC2\x80", "\xC2\x9B", "\xC2\x9F", "\xD8\x9C", "\xE2\x80\x8E", "\xE2\x80\xA8", "\xE2\x80\xAE", "\xE2\x81\xA6"})
    EXPECT_EQ(safe_text(std::string("a") + mark + "b"), "a b");
}

TEST(SafeText, LineEndsAreKeptOnRequest) {
  EXPECT_EQ(safe_text("a\nb"), "a b");
  EXPECT_EQ(safe_text("a\nb\r", LineEnds::kept), "a\nb ");
}

TEST(SafeText, BytesThatAreNotUtf8AreReplaced) {
  const std::string replaced = "\xEF\xBF\xBD";
  EXPECT_EQ(safe_text("a\xFF"
                      "b"),
            "a" + replaced + "b");
  EXPECT_EQ(safe_text("\xC3"), replaced);
  EXPECT_EQ(safe_text("\xC0\x9B"), replaced + replaced) << "an overlong form of ESC";
  EXPECT_EQ(safe_text("\xED\xA0\x80"), replaced + replaced + replaced) << "a surrogate";
}

}  // namespace
}  // namespace attnbench
