// Tests of the registry of methods and of their typed options.
#include "attn/registry.h"

#include <gtest/gtest.h>

#include <regex>

#include "tests/support/errors_of.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

using attnbench::message_of;
using Pairs = std::vector<std::pair<std::string, std::string>>;

const std::vector<OptionSpec> kSpecs = {{"chunk", int64_t{128}, "positions", {}, 1},
                                        {"offset", int64_t{0}, "may be negative", {}, -5},
                                        {"scale", 0.5, "a number", {}},
                                        {"exact", false, "a flag", {}},
                                        {"profile", std::string("trax"), "a choice", {"trax", "fast"}},
                                        {"note", std::string("none"), "any text", {}}};

std::string refusal(const Pairs& given) {
  return message_of<c10::ValueError>([&] { Options("lsh", kSpecs, given); });
}

TEST(MethodSpec, SplitsNameAndOptions) {
  const auto plain = MethodSpec::parse("linear");
  EXPECT_EQ(plain.name, "linear");
  EXPECT_TRUE(plain.options.empty());
  const auto one = MethodSpec::parse("linear:chunk=256");
  EXPECT_EQ(one.name, "linear");
  EXPECT_EQ(one.options, (Pairs{{"chunk", "256"}}));
  EXPECT_EQ(MethodSpec::parse("lsh-4:buckets=8,profile=trax").options, (Pairs{{"buckets", "8"}, {"profile", "trax"}}));
  EXPECT_EQ(MethodSpec::parse("x:a=,b=1=2:3").options, (Pairs{{"a", ""}, {"b", "1=2:3"}}));
}

TEST(MethodSpec, MalformedOptionsAreRefused) {
  for (const auto& [text, item] : {std::pair{"linear:", ""},
                                   {"linear:chunk", "chunk"},
                                   {"linear:=3", "=3"},
                                   {"linear:chunk=3,", ""},
                                   {"linear:,chunk=3", ""}})
    EXPECT_CONTAINS(message_of<c10::ValueError>([&, t = text] { MethodSpec::parse(t); }),
                    "method '" + std::string(text) + "': '" + item + "' is not of the form option=value");
}

TEST(Options, DefaultsAndGivenValues) {
  const Options defaults("lsh", kSpecs, {});
  EXPECT_EQ(defaults.integer("chunk"), 128);
  EXPECT_EQ(defaults.text("profile"), "trax");
  const Options given("lsh", kSpecs, {{"profile", "fast"}, {"chunk", "256"}, {"offset", "-5"}});
  EXPECT_EQ(given.integer("chunk"), 256);
  EXPECT_EQ(given.integer("offset"), -5);
  EXPECT_EQ(given.text("profile"), "fast");
  EXPECT_EQ(given.text("note"), "none");
  EXPECT_NO_THROW(Options("lsh", kSpecs, {{"scale", "1e-3"}, {"exact", "true"}}));
}

TEST(Options, UnknownAndRepeatedOptionsAreRefused) {
  EXPECT_CONTAINS(refusal({{"chunks", "3"}}), "lsh: unknown option 'chunks'; known: chunk, offset, scale, exact, profile, note");
  EXPECT_CONTAINS(refusal({{"chunk", "3"}, {"chunk", "3"}}), "lsh: option 'chunk' is given twice");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] {
                    Options("softmax", {}, {{"chunk", "3"}});
                  }),
                  "softmax: unknown option 'chunk'; it has none");
}

TEST(Options, BadValuesAreRefused) {
  for (const auto* text : {"0", "-3", "1.5", "", " 3", "3 ", "many", "0x10", "99999999999999999999"})
    EXPECT_CONTAINS(refusal({{"chunk", text}}),
                    "lsh: chunk = '" + std::string(text) + "', expected a whole number from 1 to 16777216");
  EXPECT_CONTAINS(refusal({{"offset", "-6"}}), "lsh: offset = '-6', expected a whole number from -5 to 16777216");
  for (const auto* text : {"", "half", "1e", "1,5"})
    EXPECT_CONTAINS(refusal({{"scale", text}}), "lsh: scale = '" + std::string(text) + "', expected a number");
  for (const auto* text : {"yes", "1", "", "True"})
    EXPECT_CONTAINS(refusal({{"exact", text}}), "lsh: exact = '" + std::string(text) + "', expected true or false");
  EXPECT_CONTAINS(refusal({{"profile", "slow"}}), "lsh: profile = 'slow', expected one of trax, fast");
}

TEST(Options, NamesOfTypes) {
  EXPECT_EQ(option_type(int64_t{1}), "integer");
  EXPECT_EQ(option_type(1.5), "number");
  EXPECT_EQ(option_type(true), "boolean");
  EXPECT_EQ(option_type(std::string("x")), "text");
}

TEST(Registry, FindsMethodsAndListsThemInOrder) {
  for (const auto* name : {"linear", "linear-einsum", "sdpa", "softmax"}) EXPECT_EQ(find_method(name).name, name);
  const auto all = methods();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](const auto* a, const auto* b) { return a->name < b->name; }));
}

TEST(Registry, EntriesAreComplete) {
  for (const auto* entry : methods()) {
    SCOPED_TRACE(entry->name);
    // Names are parts of file names and must not contain the characters that separate methods, options and values.
    EXPECT_TRUE(std::regex_match(entry->name, std::regex("[a-z][a-z0-9.-]*")));
    EXPECT_FALSE(entry->description.empty());
    EXPECT_EQ(entry->description.find('\n'), std::string::npos);
    EXPECT_TRUE(entry->time_order.starts_with("O(") && entry->time_order.ends_with(")")) << entry->time_order;
    EXPECT_TRUE(entry->memory_order.starts_with("O(") && entry->memory_order.ends_with(")")) << entry->memory_order;
    for (const auto& option : entry->options) {
      EXPECT_TRUE(std::regex_match(option.name, std::regex("[a-z][a-z0-9_-]*"))) << option.name;
      EXPECT_FALSE(option.description.empty()) << option.name;
    }
    EXPECT_NE(make_method(entry->name), nullptr);
  }
}

TEST(Registry, ADuplicateNameIsAnError) {
  MethodEntry entry = find_method("linear");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { RegisterMethod{entry}; }), "method 'linear' is registered twice");
  EXPECT_EQ(find_method("linear").description, entry.description);
}

TEST(Registry, MethodsOfALibraryAreCollectedAndNotRefused) {
  auto own = find_method("linear");
  own.name = "of-a-library";
  const auto collected = methods_registered_by([&] {
    RegisterMethod{own};
    RegisterMethod{find_method("linear")};
  });
  ASSERT_EQ(collected.size(), 2);
  EXPECT_EQ(collected[0].name, "of-a-library");
  EXPECT_EQ(collected[1].name, "linear");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { find_method("of-a-library"); }), "unknown method");

  // Afterwards methods are registered as before, also if the library could not be loaded.
  EXPECT_THROW(methods_registered_by([] { throw std::runtime_error("cannot be loaded"); }), std::runtime_error);
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { RegisterMethod{find_method("linear")}; }), "is registered twice");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { add_method(collected[1]); }), "method 'linear' is registered twice");
}

TEST(Registry, AnUnknownMethodListsTheKnown) {
  for (const auto* spec : {"linaer", "", "Linear", "linaer:chunk=3"}) {
    const auto message = message_of<c10::ValueError>([&] { make_method(spec); });
    EXPECT_CONTAINS(message, "unknown method '" + std::string(spec).substr(0, std::string(spec).find(':')) + "'; known: ");
    EXPECT_CONTAINS(message, "linear, linear-chunked, linear-cumsum, ");
  }
}

TEST(Registry, OptionsReachTheMethod) {
  EXPECT_EQ(make_method("linear-chunked:chunk=256")->label(), "linear-chunked:chunk=256");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { make_method("linear-chunked:chunk=0"); }),
                  "linear-chunked: chunk = '0', expected a whole number from 1 to 16777216");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { make_method("softmax:chunk=2"); }),
                  "softmax: unknown option 'chunk'; it has none");
  // Two methods with the same name have options of their own.
  const auto small = make_method("linear-chunked:chunk=1"), large = make_method("linear-chunked:chunk=1024");
  const auto problem = problem_of({1024, 1024, 8, 8}, at::kFloat, Masking::causal);
  EXPECT_LT(small->cost(problem, Protocol::forward).flops, large->cost(problem, Protocol::forward).flops);
}

}  // namespace
}  // namespace attn
