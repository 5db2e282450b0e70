// Tests that the fast reader of JSON returns what nlohmann's parser returns, or nothing.
#include "harness/schema/plain_json.h"

#include <gtest/gtest.h>

#include <string>

namespace attnbench {
namespace {

// Whether both values have the same text, and their numbers the same types.
bool are_identical(const Json& a, const Json& b) {
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (a.is_array())
    for (size_t i = 0; i < a.size(); ++i)
      if (!are_identical(a[i], b[i])) return false;
  if (a.is_object())
    for (auto one = a.begin(), other = b.begin(); one != a.end(); ++one, ++other)
      if (one.key() != other.key() || !are_identical(*one, *other)) return false;
  return a.dump() == b.dump();
}

TEST(PlainJson, ReadsWhatTheOtherParserReads) {
  for (const std::string text : {"{}",
                                 "[]",
                                 " { } ",
                                 "[ ]",
                                 "null",
                                 "true",
                                 "false",
                                 "0",
                                 "-0",
                                 "-0.0",
                                 "12",
                                 "-12",
                                 "1.5",
                                 "-1.5e3",
                                 "1E+2",
                                 "1e-2",
                                 "18446744073709551615",
                                 "-9223372036854775808",
                                 "0.1",
                                 "5e-324",
                                 "1.7976931348623157e308",
                                 "123456789.123456789",
                                 R"("")",
                                 R"("text")",
                                 R"("\"\\\/\b\f\n\r\t")",
                                 R"(["a", 1, [2.5, null], {"b": {"c": [true, false]}}])",
                                 R"({"z": 1, "a": "x",
            "m": [1, 2, 3]})"}) {
    const auto read = parse_plain_json(text);
    ASSERT_TRUE(read.has_value()) << text;
    EXPECT_TRUE(are_identical(*read, Json::parse(text))) << text;
  }
}

TEST(PlainJson, LeavesWhatIsUnusualToTheOtherParser) {
  for (const std::string text : {"\"\xC2\xB5s\"", R"("\u00b5")", R"({"a": 1, "a": 2})", "18446744073709551616",
                                 "-9223372036854775809", "1e400", "1e-400", "\xEF\xBB\xBF{}", "\"\x7F\""})
    EXPECT_FALSE(parse_plain_json(text).has_value()) << text;
  EXPECT_FALSE(parse_plain_json(std::string(40, '[') + std::string(40, ']')).has_value());
}

TEST(PlainJson, ReadsNothingThatIsNotJson) {
  for (const std::string text :
       {"",          " ",          "{",     "[",     "[1",  "[1,",   "[1,]",      "[,]",          "{\"a\"", "{\"a\":", "{\"a\":1",
        "{\"a\":1,", "{\"a\":1,}", "{a:1}", "{1:1}", "tru", "truth", "nul",       "01",           "-",      "-01",     "1.",
        ".5",        "1e",         "1e+",   "+1",    "0x1", "nan",   "inf",       "Infinity",     "\"a",    "\"\\",    "\"\\x\"",
        "\"a\nb\"",  "1 2",        "{} {}", "[1]]",  "'a'", "[1 2]", "{\"a\" 1}", "// comment\n1"}) {
    EXPECT_FALSE(parse_plain_json(text).has_value()) << text;
    EXPECT_FALSE(Json::accept(text)) << text;
  }
  EXPECT_FALSE(parse_plain_json(std::string("1\0", 2)).has_value());
}

TEST(PlainJson, ReadsNothingOfTextThatIsCutOff) {
  const std::string text = R"({"method": "linear", "list": [1.5, -2, null], "flag": true, "inner": {"x": "y\n"}})";
  EXPECT_TRUE(are_identical(parse_plain_json(text).value(), Json::parse(text)));
  for (size_t size = 0; size < text.size(); ++size) EXPECT_FALSE(parse_plain_json(text.substr(0, size)).has_value()) << size;
}

}  // namespace
}  // namespace attnbench
