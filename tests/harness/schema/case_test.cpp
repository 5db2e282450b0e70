// Tests of Case: the declarations of its fields, its conversion to and from JSON, and the values that it refuses.
#include "harness/schema/case.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <stdexcept>

#include "harness/machine/machine.h"
#include "tests/support/errors_of.h"

namespace attnbench {
namespace {

// A valid value of the field that is not its default.
Json another_value(const Field& field) {
  const auto now = get(Case(), field);
  if (now.is_boolean()) return !now.get<bool>();
  if (now.is_number_integer()) return now.get<int64_t>() + 7;
  if (now.is_number()) return now.get<double>() + 0.25;
  for (const auto& choice : field.choices)
    if (now != choice) return choice;
  return "another";
}

// The message of the error that setting the field to the value throws.
std::string refusal(const char* field, const Json& value) {
  Case c;
  return message_of<std::invalid_argument>([&] { set(c, *find_field(field), value); });
}

TEST(Case, FieldsHaveDistinctNamesAndCompleteDeclarations) {
  std::set<std::string_view> names;
  for (const auto& field : fields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_EQ(find_field(field.name), &field);
    EXPECT_FALSE(field.description.empty()) << field.name;
    EXPECT_EQ(field.role == FieldRole::setting, !field.section.empty()) << field.name;
    EXPECT_EQ(find_axis(field.name), field.role == FieldRole::axis ? &field : nullptr);
    if (!field.follows.empty()) {
      EXPECT_EQ(find_axis(field.follows)->kind, field.kind) << field.name << " follows an axis of another kind";
    }
    EXPECT_EQ(field.since > 1 && field.follows.empty(), !field.before.is_null())
        << field.name << ": records written before the field existed need a value for it";
  }
  EXPECT_EQ(find_field("query_length"), nullptr);
}

TEST(Case, EveryFieldIsReadBackFromJson) {
  Case c;
  for (const auto& field : fields()) set(c, field, another_value(field));
  const auto json = to_json(c);
  EXPECT_EQ(json.size(), fields().size());
  const auto again = case_from_json(Json::parse(json.dump()));
  for (const auto& field : fields()) {
    EXPECT_EQ(get(again, field), another_value(field)) << field.name;
    EXPECT_NE(get(again, field), get(Case(), field)) << field.name;
  }
}

// A worker of an earlier build may not know a test hook, and must still understand ordinary requests.
TEST(Case, TestHooksAreInJsonOnlyWhenTheyAreSet) {
  Case c;
  EXPECT_FALSE(to_json(c).contains("injected_slowdown_percent"));
  EXPECT_EQ(to_json(c).size(), fields().size() - 1);
  c.injected_slowdown_percent = 10;
  EXPECT_EQ(to_json(c)["injected_slowdown_percent"], 10);
}

TEST(Case, FieldsThatWereNotSetAreDefaults) {
  Case c;
  c.query_len = 300;
  c.head_dim = 24;
  c.protocol = "decode";
  c.complete();
  for (const auto& field : fields()) {
    const bool given = field.name == "query_len" || field.name == "head_dim" || field.name == "protocol";
    EXPECT_EQ(is_default(c, field), !given) << field.name;
  }
  c.key_len = 299;
  c.batch = 2;
  EXPECT_FALSE(is_default(c, *find_field("key_len")));
  EXPECT_FALSE(is_default(c, *find_field("batch")));
  set_to_default(c, *find_field("key_len"));
  c.complete();
  EXPECT_EQ(c.key_len, 300);
}

TEST(Case, CompleteFillsKeyLenValueDimThreadsAndMemoryLimit) {
  Case c;
  c.query_len = 300;
  c.head_dim = 24;
  c.complete();
  EXPECT_EQ(c.key_len, 300);
  EXPECT_EQ(c.value_dim, 24);
  EXPECT_EQ(c.threads, available_processors());
  Case split;
  split.ranks = 2 * available_processors();
  split.complete();
  EXPECT_EQ(split.threads, 1);  // ranks have at least one thread each, for which there may be too few processors
  EXPECT_GT(c.memory_limit_bytes, 1 << 20);

  Case given;
  given.key_len = 7;
  given.value_dim = 5;
  given.threads = 3;
  given.ranks = 2;
  given.memory_limit_bytes = 1000;
  given.complete();
  EXPECT_EQ(given.key_len, 7);
  EXPECT_EQ(given.value_dim, 5);
  EXPECT_EQ(given.threads, 3);
  EXPECT_EQ(given.memory_limit_bytes, 1000);
}

TEST(Case, CompleteMakesDecodingProtocolsCausal) {
  for (const auto& [protocol, causal] :
       {std::pair{"forward", false}, {"forward_backward", false}, {"prefill", true}, {"decode", true}}) {
    Case c;
    c.protocol = protocol;
    c.complete();
    EXPECT_EQ(c.causal, causal) << protocol;
    EXPECT_EQ(c.decodes(), causal) << protocol;
    c.causal = true;
    c.complete();
    EXPECT_TRUE(c.causal);
  }
}

TEST(Case, ASmallCaseKeepsItsPackedSequencesAsFarAsTheyFit) {
  const auto small = [](const char* packed) {
    Case c;
    c.query_len = c.key_len = 100;
    c.packed = packed;
    return c.small(10).packed;
  };
  EXPECT_EQ(small("none"), "none");
  EXPECT_EQ(small("uniform:16"), "uniform:10");
  EXPECT_EQ(small("uniform:4"), "uniform:4");
  EXPECT_EQ(small("lengths:3,90,7"), "lengths:3,7");
  EXPECT_EQ(small("lengths:100"), "lengths:10");
  EXPECT_EQ(small("lengths:x"), "lengths:x");  // is refused where it is read
}

TEST(Case, WrongTypesAreRefused) {
  EXPECT_EQ(refusal("query_len", "512"), "query_len = \"512\", expected a whole number");
  EXPECT_EQ(refusal("query_len", 512.5), "query_len = 512.5, expected a whole number");
  EXPECT_EQ(refusal("query_len", 512.0), "query_len = 512.0, expected a whole number");
  EXPECT_EQ(refusal("query_len", true), "query_len = true, expected a whole number");
  EXPECT_EQ(refusal("query_len", nullptr), "query_len = null, expected a whole number");
  EXPECT_EQ(refusal("method", 3), "method = 3, expected text");
  EXPECT_EQ(refusal("causal", 1), "causal = 1, expected true or false");
  EXPECT_EQ(refusal("causal", "true"), "causal = \"true\", expected true or false");
  EXPECT_EQ(refusal("noise_target", "0.1"), "noise_target = \"0.1\", expected a number");
  EXPECT_EQ(refusal("noise_target", Json::array({0.1})), "noise_target = [0.1], expected a number");
}

TEST(Case, ValuesOutOfRangeAreRefused) {
  EXPECT_EQ(refusal("batch", 0), "batch = 0, expected at least 1");
  EXPECT_EQ(refusal("query_len", -512), "query_len = -512, expected at least 1");
  EXPECT_EQ(refusal("seed", -1), "seed = -1, expected at least 0");
  EXPECT_EQ(refusal("min_samples", 4), "min_samples = 4, expected at least 5");
  EXPECT_EQ(refusal("deadline_s", 0), "deadline_s = 0, expected at least 0.001");
  EXPECT_EQ(refusal("dtype", "float8"), "dtype = 'float8', expected one of float32, float64, bfloat16, float16");
  EXPECT_EQ(refusal("inputs", "uniform"),
            "inputs = 'uniform', expected one of normal, clustered, repeated, offset, scaled, outliers, file:PATH");
  EXPECT_CONTAINS(refusal("inputs", "file:"), "file:PATH");
  Case with_file;
  set(with_file, *find_field("inputs"), "file:a b.npy");
  EXPECT_EQ(with_file.inputs, "file:a b.npy");
  EXPECT_EQ(refusal("device", "CPU"), "device = 'CPU', expected one of cpu, cuda");
  EXPECT_CONTAINS(refusal("query_len", std::numeric_limits<uint64_t>::max()), "query_len = 18446744073709551615, expected");
  EXPECT_CONTAINS(refusal("query_len", uint64_t(std::numeric_limits<int64_t>::max()) + 1), "expected at most 1099511627776");
  EXPECT_EQ(refusal("query_len", 2.5), "query_len = 2.5, expected a whole number");
  EXPECT_EQ(refusal("warmup_s", std::numeric_limits<double>::infinity()), "warmup_s = infinity, expected a number");
  EXPECT_EQ(refusal("warmup_s", std::numeric_limits<double>::quiet_NaN()), "warmup_s = NaN, expected a number");
  EXPECT_EQ(refusal("key_lengths", "some"), "key_lengths = 'some', expected one of full, uniform, or a whole number");
  EXPECT_EQ(refusal("key_lengths", "-3"), "key_lengths = -3, expected at least 0");
}

TEST(Case, ARefusedValueLeavesTheFieldUnchanged) {
  Case c;
  c.query_len = 5;
  EXPECT_THROW(set(c, *find_field("query_len"), -1), std::invalid_argument);
  EXPECT_EQ(c.query_len, 5);
}

TEST(Case, SetTextParsesValuesOfTheCommandLine) {
  Case c;
  set_text(c, *find_field("query_len"), "2048");
  set_text(c, *find_field("causal"), "true");
  set_text(c, *find_field("noise_target"), "0.5");
  set_text(c, *find_field("key_lengths"), "uniform");
  EXPECT_EQ(c.query_len, 2048);
  EXPECT_TRUE(c.causal);
  EXPECT_EQ(c.noise_target, 0.5);
  EXPECT_EQ(c.key_lengths, "uniform");
  const auto refused = [&](const char* field, const char* text) {
    return message_of<std::invalid_argument>([&] { set_text(c, *find_field(field), text); });
  };
  EXPECT_EQ(refused("query_len", "many"), "query_len = 'many', expected a number");
  EXPECT_EQ(refused("query_len", ""), "query_len = '', expected a number");
  EXPECT_EQ(refused("query_len", "1e3"), "query_len = 1000.0, expected a whole number");
  EXPECT_EQ(refused("query_len", "99999999999999999999"), "query_len = 1e+20, expected at most 1099511627776");
  EXPECT_EQ(refused("causal", "yes"), "causal = 'yes', expected true or false");
}

// Old sweep files, requests of old drivers and old records name the case that has the option under its current name.
TEST(Case, FormerOptionsOfMethodsNameTheSameCase) {
  Case c;
  set_text(c, *find_field("method"), "linear:kernel=avx2");
  EXPECT_EQ(c.method, "linear:implementation=avx2");
  set_text(c, *find_field("baseline"), "favor:chunk=7 query_len=1024");
  EXPECT_EQ(c.baseline, "favor:composed_chunk=7 query_len=1024");
  EXPECT_EQ(baseline_of(c)->method, "favor:composed_chunk=7");
  EXPECT_EQ(case_from_json({{"method", "lsh-1:kernel=avx2"}}).method, "lsh-1:implementation=avx2");
  set_text(c, *find_field("method"), "mine.py:f:kernel=3");
  EXPECT_EQ(c.method, "mine.py:f:kernel=3");
}

TEST(Case, JsonThatIsNotACaseIsRefused) {
  const auto refused = [](const char* text) {
    return message_of<std::invalid_argument>([&] { case_from_json(Json::parse(text)); });
  };
  EXPECT_EQ(refused("[]"), "a case is array, expected an object");
  EXPECT_EQ(refused("null"), "a case is null, expected an object");
  EXPECT_EQ(refused("{}"), "a case has no method");
  EXPECT_EQ(refused(R"({"method": "linear", "query_length": 3})"), "a case has an unknown field 'query_length'");
  EXPECT_EQ(refused(R"({"method": "linear", "heads": 0})"), "heads = 0, expected at least 1");
}

TEST(Case, KeyDependsOnEveryAxisAndOnNoSetting) {
  Case c;
  c.method = "linear";
  const auto key = case_key(to_json(c));
  for (const auto& field : fields()) {
    auto other = c;
    set(other, field, another_value(field));
    EXPECT_EQ(case_key(to_json(other)) == key, field.role == FieldRole::setting) << field.name;
  }
}

// The value of one axis must not be mistaken for the next axis, whatever spaces and quotes it contains.
TEST(Case, KeysOfDifferentCasesDifferEvenIfAValueLooksLikeAnotherAxis) {
  Case a, b;
  a.method = "linear device=cpu";
  b.method = "linear";
  EXPECT_NE(case_key(to_json(a)), case_key(to_json(b)));
  EXPECT_CONTAINS(case_key(to_json(a)), R"(method="linear device=cpu")");
}

TEST(Case, ABaselineHasTheAxesOfItsCase) {
  Case c;
  c.method = "linear:chunk=64";
  c.query_len = 4096;
  c.baseline = "sdpa";
  c.complete();
  const auto baseline = baseline_of(c);
  ASSERT_TRUE(baseline);
  EXPECT_EQ(baseline->method, "sdpa");
  EXPECT_EQ(baseline->query_len, 4096);
  EXPECT_EQ(baseline->baseline, "") << "the baseline itself is measured without one";
}

TEST(Case, ABaselineMayDifferInFurtherAxes) {
  Case c;
  c.method = "linear";
  c.query_len = 4096;
  c.baseline = "linear query_len=64 causal=true";
  c.complete();
  const auto baseline = baseline_of(c);
  ASSERT_TRUE(baseline);
  EXPECT_EQ(baseline->query_len, 64);
  EXPECT_EQ(baseline->key_len, 64) << "there were as many keys as queries";
  EXPECT_TRUE(baseline->causal);
  c.key_len = 100;
  EXPECT_EQ(baseline_of(c)->key_len, 100);
}

TEST(Case, ABaselineTakesTurnsWithItself) {
  Case c;
  c.method = "sdpa";
  c.complete();
  EXPECT_FALSE(baseline_of(c));
  c.baseline = "sdpa";
  ASSERT_TRUE(baseline_of(c));
  EXPECT_EQ(case_key(to_json(*baseline_of(c))), case_key(to_json(c)));
}

TEST(Case, AWrongBaselineNamesTheWordThatIsWrong) {
  const auto refusal_of = [](const std::string& baseline) {
    Case c;
    c.baseline = baseline;
    return message_of<std::invalid_argument>([&] { baseline_of(c); });
  };
  EXPECT_CONTAINS(refusal_of("sdpa fast"), "'fast' is not an axis with a value, such as query_len=1024");
  EXPECT_CONTAINS(refusal_of("sdpa method=linear"), "'method=linear' is not an axis");
  EXPECT_CONTAINS(refusal_of("sdpa query_len=x"), "query_len = 'x', expected a number");
}

}  // namespace
}  // namespace attnbench
