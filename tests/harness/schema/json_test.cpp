// Tests of the parser of JSON, which must agree with the library that defines the JSON type.
#include "harness/schema/json.h"

#include <gtest/gtest.h>

#include <string>

namespace attnbench {
namespace {

using namespace std::string_literals;

std::string nested(int levels) { return std::string(size_t(levels), '[') + std::string(size_t(levels), ']'); }

// parse_json() reads most texts with another library than the one that defines Json, so it must agree with that one.
TEST(ParseJson, ReadsWhatTheLibraryOfJsonReads) {
  const auto many_members = [] {
    auto object = Json::object();
    for (int i = 0; i < 5000; ++i) object["name " + std::to_string(i)] = i;
    return object.dump();
  }();
  for (const auto& text : {"null"s,
                           "true"s,
                           " false "s,
                           "\"\""s,
                           "[]"s,
                           "{}"s,
                           "[[],{},[{}]]"s,
                           R"({"a":{"b":[1,"c",null]},"d":false})"s,
                           R"("tab\tquote\"slash\/unicode\u00e9 pair\ud83d\ude00")"s,
                           "\"\u00e9\u4e2d\""s,
                           R"("nul\u0000inside")"s,
                           R"({"":1})"s,
                           R"({"a":1,"b":2,"a":3})"s,
                           "0"s,
                           "-0"s,
                           "-0.0"s,
                           "1"s,
                           "-1"s,
                           "1.0"s,
                           "1e2"s,
                           "1E-2"s,
                           "0.1"s,
                           "9223372036854775807"s,
                           "9223372036854775808"s,
                           "18446744073709551615"s,
                           "18446744073709551616"s,
                           "-9223372036854775808"s,
                           "-9223372036854775809"s,
                           "123456789012345678901234567890"s,
                           "1e-400"s,
                           "4.9e-324"s,
                           "2.2250738585072011e-308"s,
                           "1.7976931348623157e308"s,
                           "9007199254740993"s,
                           "9007199254740993.0"s,
                           "0.1000000000000000055511151231257827021181583404541015625"s,
                           "\xEF\xBB\xBF[1]"s,
                           "\n\t [1 , 2]\r\n"s,
                           "[1]\0"s,
                           nested(64),
                           many_members}) {
    const auto expected = Json::parse(text);
    const auto found = parse_json(text);
    EXPECT_EQ(found, expected) << text;
    EXPECT_EQ(found.dump(), expected.dump()) << text;
    EXPECT_EQ(found.type(), expected.type()) << text;
  }
}

TEST(ParseJson, RefusesWhatTheLibraryOfJsonRefuses) {
  for (const auto& text : {""s,
                           " "s,
                           "nul"s,
                           "[1,]"s,
                           "{\"a\":1,}"s,
                           "{a:1}"s,
                           "'a'"s,
                           "01"s,
                           "+1"s,
                           "1."s,
                           ".5"s,
                           "1e"s,
                           "-"s,
                           "NaN"s,
                           "Infinity"s,

                           "[1] 2"s,
                           "\"a"s,
                           "\"\x01\""s,
                           "\"\xff\""s,
                           "\"\xc0\x80\""s,
                           "\"\\ud83d\""s,
                           "\"\\x\""s,
                           "[1 2]"s,
                           "{\"a\" 1}"s,
                           "// comment\n1"s,
                           "[1"s,
                           "{\"a\":"s}) {
    EXPECT_FALSE(Json::accept(text)) << text;
    EXPECT_THROW(parse_json(text), JsonError) << text;
  }
}

// AddressSanitizer reports an access beyond the end of the text.
TEST(ParseJson, RefusesTextsThatEndWithinACharacter) {
  for (const auto& character : {"\u00e9"s, "\u0800"s, "\u4e2d"s, "\ud7ff"s, "\U00010000"s, "\U0001f600"s, "\U0010ffff"s})
    for (size_t bytes = 1; bytes < character.size(); ++bytes) {
      // The text is so long that a std::string holds it in memory of its own, of exactly its size.
      const auto text = "\"" + std::string(40, 'a') + character.substr(0, bytes);
      EXPECT_THROW(parse_json(text), JsonError) << text;
    }
}

TEST(ParseJson, RefusesNumbersThatAreTooLarge) {
  for (const auto* text : {"1e400", "-1e400", "[1, 1e999]"}) EXPECT_THROW(parse_json(text), JsonError) << text;
}

TEST(ParseJson, NamesThePositionOfAnError) {
  try {
    parse_json(R"({"a": 1, "b": oops})");
    FAIL() << "expected a JsonError";
  } catch (const JsonError& error) {
    EXPECT_EQ(error.position, 15U);
    EXPECT_NE(std::string(error.what()).find("invalid literal"), std::string::npos) << error.what();
  }
}

TEST(ParseJson, RefusesMoreThan64Levels) {
  EXPECT_NO_THROW(parse_json(nested(64)));
  EXPECT_THROW(parse_json(nested(65)), JsonError);
  EXPECT_THROW(parse_json(std::string(1 << 20, '[')), JsonError);
}

}  // namespace
}  // namespace attnbench
