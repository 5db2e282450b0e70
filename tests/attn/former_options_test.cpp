// Tests of the names that options of methods had before.
#include "attn/former_options.h"

#include <gtest/gtest.h>

#include <string>

#include "attn/registry.h"

namespace attn {
namespace {

TEST(FormerOptions, AreConvertedToTheCurrentOnes) {
  EXPECT_EQ(with_current_options("linear:kernel=avx2"), "linear:implementation=avx2");
  EXPECT_EQ(with_current_options("lsh:rounds=2,kernel=avx2,chunk=8"), "lsh:rounds=2,implementation=avx2,chunk=8");
  EXPECT_EQ(with_current_options("favor:chunk=7,kernel=composed"), "favor:composed_chunk=7,implementation=composed");
  EXPECT_EQ(with_current_options("linear:kernel=avx2 query_len=1024"), "linear:implementation=avx2 query_len=1024");
}

TEST(FormerOptions, OtherTextsStayAsTheyAre) {
  for (const std::string text :
       {"", "linear", "linear:", "linear:kernel", "linear:implementation=avx2", "linear:x=kernel=avx2", "linear-chunked:chunk=7",
        "rff:chunk=7", "mine.py:linear:kernel=3", "mine.py:f:kernel=3,chunk=2", "plugin-method:kernel=fast", "linear:a=1,",
        "favor:,", "linear query_len=3", "sdpa query_len=3"}) {
    EXPECT_EQ(with_current_options(text), text);
    if (text.find("implementation") == std::string::npos) {
      EXPECT_EQ(with_former_options(text), text);
    }
  }
}

TEST(FormerOptions, AreWhatProgramsOfEarlierVersionsAreAskedFor) {
  for (const std::string text : {"linear:kernel=avx2", "favor:chunk=7,kernel=composed", "lsh:kernel=avx2,chunk=8"})
    EXPECT_EQ(with_former_options(with_current_options(text)), text);
}

// A method is the same by either name of its option, and is labelled by the current one.
TEST(FormerOptions, NameTheSameMethod) {
  EXPECT_EQ(make_method("linear:kernel=portable")->label(), "linear:implementation=portable");
  EXPECT_EQ(MethodSpec::parse("linear:kernel=portable").options, MethodSpec::parse("linear:implementation=portable").options);
  EXPECT_THROW(make_method("linear:kernel=portable,implementation=portable"), c10::ValueError);
  EXPECT_THROW(make_method("linear-chunked:kernel=portable"), c10::ValueError);
}

TEST(FormerOptions, BelongToMethodsThatHaveTheCurrentOnes) {
  for (const auto& option : kFormerOptions) {
    const auto& options = find_method(std::string(option.method)).options;
    const auto has = [&](std::string_view name) {
      return std::any_of(options.begin(), options.end(), [&](const OptionSpec& one) { return one.name == name; });
    };
    EXPECT_TRUE(has(option.current)) << option.method;
    EXPECT_FALSE(has(option.former)) << option.method;
  }
}

}  // namespace
}  // namespace attn
