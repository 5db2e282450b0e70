// Tests of cases of the protocols decode and prefill: every decoding step is a sample, and no wrong result gets a time.
#include "harness/worker/protocols/decode.h"

#include <gtest/gtest.h>

#include "harness/worker/measure.h"
#include "tests/support/causal_mean.h"
#include "tests/support/errors_of.h"

namespace attnbench {
namespace {

using Flaw = attn::CausalMean::Flaw;

const attn::RegisterCausalMean means[] = {
    {"test-mean", Flaw::none},
    {"test-mean-larger-state", Flaw::larger_state},
    {"test-mean-keeps-more", Flaw::keeps_more},
    {"test-mean-keeps-the-inputs", Flaw::keeps_the_inputs},
    {"test-mean-wrong-step", Flaw::wrong_step},
    {"test-mean-wrong-late-step", Flaw::wrong_late_step},
    {"test-mean-wrong-extend", Flaw::wrong_extend},
    {"test-mean-nan-step", Flaw::nan_step},
    {"test-mean-wrong-prefill", Flaw::wrong_prefill},
    {"test-mean-prefill-keeps-more", Flaw::prefill_keeps_more},
    {"test-mean-throws-in-step", Flaw::throws_in_step},
    {"test-mean-approximates", Flaw::approximates},
    {"test-mean-unknown-diagnostic", Flaw::unknown_diagnostic},
};

Case quick_case(const std::string& method, const std::string& protocol, int64_t query_len = 64) {
  Case c;
  c.method = method;
  c.protocol = protocol;
  c.batch = 2;
  c.heads = 3;
  c.query_len = query_len;
  c.head_dim = 8;
  c.value_dim = 4;
  c.threads = 1;
  c.warmup_s = 0;
  c.time_budget_s = 0;
  c.max_disturbance = 1e6;  // all samples count, however busy the machine is
  c.complete();
  return c;
}

Record expect_failed_decoding(const Case& c, const char* failure_kind) {
  auto record = measure(c);
  EXPECT_EQ(record.text("outcome"), "failed") << c.method;
  EXPECT_EQ(record.text("failure_kind"), failure_kind) << record.text("reason");
  for (const auto& column : columns()) {
    if (column.group == "time") {
      EXPECT_FALSE(record.has(column.name)) << c.method << " " << column.name;
    }
  }
  return record;
}

// The state of CausalMean at the sizes of quick_case(), and the inputs, the output and the memory of one step.
constexpr int64_t kStateBytes = 2 * 3 * 4 * 4 + 8;
constexpr int64_t kTokenBytes = 2 * 3 * (8 + 8 + 4) * 4, kOutputBytes = 2 * 3 * 4 * 4, kStepBytes = kOutputBytes + 4;

TEST(MeasureDecode, ACorrectMethodGetsAllColumns) {
  const auto record = measure(quick_case("test-mean", "decode", 400));
  ASSERT_TRUE(record.measured()) << record.text("reason");
  EXPECT_EQ(record.text("implementation"), "test-step");
  // The four steps that were checked warm up, and then the first 12 of one round of 32 steps. Each of the others is a sample.
  EXPECT_EQ(record.get("samples"), 20);
  EXPECT_EQ(record.get("time_samples_ms").size(), 20u);
  EXPECT_EQ(record.get("calls_per_sample"), 1);
  EXPECT_EQ(record.get("warmup_calls"), 4 + 12);
  EXPECT_TRUE(record.text("stop_reason") == "time_budget" || record.text("stop_reason") == "noise_target");
  EXPECT_GT(record.number("time_first_ms"), 0);
  EXPECT_GT(record.number("measured_s"), record.number("time_first_ms") / 1e3);
  // These are the inputs and the output of one token.
  EXPECT_EQ(record.get("input_bytes"), kTokenBytes);
  EXPECT_EQ(record.get("output_bytes"), kOutputBytes);
  EXPECT_EQ(record.get("saved_bytes"), 0);
  EXPECT_EQ(record.get("state_bytes"), kStateBytes);
  EXPECT_EQ(record.number("predicted_state_bytes"), kStateBytes);
  // These are the state and the memory of one step (the output, and the token count as a float), without the 400 earlier tokens.
  EXPECT_EQ(record.get("peak_extra_bytes"), kStateBytes + kStepBytes);
  EXPECT_EQ(record.get("peak_allocated_bytes"), kStateBytes + kStepBytes + kTokenBytes);
  EXPECT_EQ(record.number("peak_extra_bytes_per_sample"), double(kStateBytes + kStepBytes) / 2);
  EXPECT_LE(record.number("largest_allocation_bytes"), kTokenBytes);
  // Four steps are checked in all batch entries and heads.
  EXPECT_EQ(record.get("rows_checked"), 4 * 2 * 3);
  EXPECT_GT(record.number("max_rel_error"), 0);
  EXPECT_LT(record.number("max_rel_error"), record.number("error_tolerance"));
  // The cost is that of one step. Preparing the state takes memory for the tokens of the prefix as well.
  EXPECT_EQ(record.number("flops"), 7);
  EXPECT_EQ(record.number("min_bytes"), 11);
  EXPECT_EQ(record.number("predicted_peak_bytes"), 13);
  EXPECT_EQ(record.number("predicted_setup_bytes"), double(kStateBytes + (400 + 32) * kTokenBytes));
  EXPECT_FALSE(record.has("quality_row_error_median"));
  EXPECT_NO_THROW(Record::parse(Json::parse(record.to_json().dump())));
}

TEST(MeasureDecode, MeasuresStepsAtTheFirstPositions) {
  for (const int64_t query_len : {1, 2, 16}) {
    const auto record = measure(quick_case("test-mean", "decode", query_len));
    EXPECT_TRUE(record.measured()) << query_len << ": " << record.text("reason");
  }
}

TEST(MeasureDecode, LongWarmUpTakesMoreStepsAndMinSamplesTakesMoreRounds) {
  auto c = quick_case("test-mean", "decode");
  c.warmup_s = 60;
  c.min_samples = 70;
  const auto record = measure(c);
  EXPECT_EQ(record.get("warmup_calls"), 32 + 4 * 12);
  EXPECT_EQ(record.get("samples"), 4 * 20);
  c.cache = "cold";
  c.warmup_s = 0;
  c.min_samples = 5;
  EXPECT_EQ(measure(c).get("samples"), 20);
}

TEST(MeasureDecode, StopsAtItsNoiseTarget) {
  auto c = quick_case("test-mean", "decode");
  c.noise_target = 1e9;
  c.time_budget_s = 1e9;
  const auto record = measure(c);
  EXPECT_EQ(record.text("stop_reason"), "noise_target");
  EXPECT_EQ(record.get("samples"), 20);
}

TEST(MeasureDecode, AStateOfAnotherSizeThanItsFormulaGivesIsInvalid) {
  for (const auto* protocol : {"decode", "prefill"}) {
    const auto record = expect_failed_decoding(quick_case("test-mean-larger-state", protocol, 400), kind::invalid);
    // The small check finds this; it has two batch entries and three heads.
    EXPECT_CONTAINS(record.text("reason"), "the decoding state holds 116 bytes after ");
    EXPECT_CONTAINS(record.text("reason"), "tokens, but the method's formula gives 104");
  }
}

TEST(MeasureDecode, AStateThatKeepsMoreMemoryInUseThanItReportsIsInvalid) {
  auto reason = expect_failed_decoding(quick_case("test-mean-keeps-more", "decode"), kind::invalid).text("reason");
  EXPECT_EQ(reason, "the decoding state holds 104 bytes after 65 tokens by its own account, but keeps 4104 in use");
  reason = expect_failed_decoding(quick_case("test-mean-prefill-keeps-more", "prefill"), kind::invalid).text("reason");
  EXPECT_EQ(reason, "the decoding state holds 104 bytes after 64 tokens by its own account, but keeps 4104 in use");
  // A view of q keeps the memory of the whole tensor q in use.
  reason = expect_failed_decoding(quick_case("test-mean-keeps-the-inputs", "decode"), kind::invalid).text("reason");
  EXPECT_CONTAINS(reason, "but keeps " + std::to_string(kStateBytes + 2 * 3 * 8 * 4 * (64 + 32)) + " in use");
}

TEST(MeasureDecode, WrongStepsAreInvalid) {
  for (const auto* method : {"test-mean-wrong-step", "test-mean-wrong-late-step", "test-mean-wrong-extend"}) {
    const auto record = expect_failed_decoding(quick_case(method, "decode", 400), kind::invalid);
    EXPECT_CONTAINS(record.text("reason"), "output disagrees with the float64 reference: relative error 0.");
  }
  for (const auto* method : {"test-mean-wrong-late-step", "test-mean-wrong-extend"})
    EXPECT_TRUE(measure(quick_case(method, "decode", 300)).measured()) << method;
  EXPECT_EQ(expect_failed_decoding(quick_case("test-mean-nan-step", "decode"), kind::invalid).text("reason"),
            "NaN or infinity in the results");
  EXPECT_EQ(expect_failed_decoding(quick_case("test-mean-throws-in-step", "decode"), kind::error).text("reason"),
            "no luck with this token");
}

TEST(MeasureDecode, APrefixBeyondTheBudgetIsOutOfMemory) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer has an allocator and a memory map of its own";
#endif
  auto c = quick_case("test-mean", "decode", 100'000);
  c.head_dim = c.value_dim = 64;  // The tokens take 460 MB.
  c.memory_limit_bytes = 64 << 20;
  expect_failed_decoding(c, kind::oom);
}

TEST(MeasurePrefill, ACorrectMethodGetsAllColumns) {
  const auto record = measure(quick_case("test-mean", "prefill", 400));
  ASSERT_TRUE(record.measured()) << record.text("reason");
  EXPECT_EQ(record.get("input_bytes"), 400 * kTokenBytes);
  EXPECT_EQ(record.get("output_bytes"), 400 * kOutputBytes);
  EXPECT_EQ(record.get("state_bytes"), kStateBytes);
  EXPECT_EQ(record.number("predicted_state_bytes"), kStateBytes);
  EXPECT_FALSE(record.has("predicted_setup_bytes"));
  EXPECT_GE(record.number("peak_extra_bytes"), kStateBytes + 400 * kOutputBytes);
  EXPECT_EQ(record.get("rows_checked"), 2 * 3 * 16);
  EXPECT_GE(record.number("samples"), 5);
  EXPECT_EQ(expect_failed_decoding(quick_case("test-mean-wrong-prefill", "prefill"), kind::invalid).get("rows_checked"), nullptr);
  EXPECT_TRUE(measure(quick_case("test-mean-wrong-step", "prefill")).measured());
  EXPECT_TRUE(measure(quick_case("test-mean-wrong-prefill", "decode")).measured());
}

TEST(MeasureDecoding, UnsupportedCasesAreSkippedWithTheReason) {
  const auto reason = [](const Case& c) {
    const auto record = measure(c);
    EXPECT_EQ(record.text("failure_kind"), "unsupported");
    EXPECT_EQ(plan(c).text("reason"), record.text("reason"));
    return record.text("reason");
  };
  for (const auto* protocol : {"decode", "prefill"}) {
    EXPECT_EQ(reason(quick_case("linear-einsum", protocol)), "linear-einsum does not decode");
    auto c = quick_case("test-mean", protocol);
    c.key_lengths = "uniform";
    EXPECT_EQ(reason(c), "test-mean: decoding takes no key lengths");
    c = quick_case("test-mean", protocol);
    c.key_len = 32;
    EXPECT_EQ(reason(c), "test-mean: decoding needs key_len = query_len");
  }
}

TEST(VerifyDecoding, ComparesEveryStep) {
  auto record = verify(quick_case("test-mean", "decode", 50));
  EXPECT_TRUE(record.measured()) << record.text("reason");
  EXPECT_EQ(record.get("rows_checked"), 2 * 3 * 4);
  EXPECT_FALSE(record.has("samples"));
  record = verify(quick_case("test-mean", "prefill", 50));
  EXPECT_TRUE(record.measured()) << record.text("reason");
  EXPECT_EQ(record.get("rows_checked"), 2 * 3 * 50);
  for (const auto* method : {"test-mean-wrong-step", "test-mean-nan-step", "test-mean-larger-state"})
    EXPECT_EQ(verify(quick_case(method, "decode", 50)).text("failure_kind"), "invalid") << method;
  for (const auto* method : {"test-mean-wrong-prefill", "test-mean-larger-state"})
    EXPECT_EQ(verify(quick_case(method, "prefill", 50)).text("failure_kind"), "invalid") << method;
  EXPECT_EQ(verify(quick_case("linear-einsum", "decode")).text("failure_kind"), "unsupported");
}

TEST(Measure, QualityAndDiagnosticsAreRecorded) {
  // The output of this method is half of the attention that it approximates.
  for (const auto* protocol : {"forward", "forward_backward", "prefill", "decode"}) {
    auto c = quick_case("test-mean-approximates", protocol, 400);
    c.causal = true;
    const auto record = measure(c, {.quality = true});
    ASSERT_TRUE(record.measured()) << record.text("reason");
    if (c.protocol == "decode") {
      EXPECT_CONTAINS(record.text("quality_not_scored"), "decoding step");
    } else {
      EXPECT_NEAR(record.number("quality_row_error_median"), 0.5, 1e-6) << protocol;
    }
    EXPECT_EQ(record.number("last_row"), c.protocol == "decode" ? 403 : 399) << protocol;
    EXPECT_EQ(record.get("diagnostics").size(), 1u);
  }
}

TEST(Measure, UndeclaredDiagnosticsAreErrors) {
  for (const auto* protocol : {"forward", "decode"}) {
    auto c = quick_case("test-mean-unknown-diagnostic", protocol);
    c.causal = true;
    EXPECT_EQ(expect_failed_decoding(c, kind::error).text("reason"),
              "test-mean-unknown-diagnostic reports the diagnostic 'last_rwo', which it does not declare");
  }
}

TEST(Inputs, HaveTheDistributionOfTheCase) {
  const auto error = [](const std::string& protocol, const std::string& inputs) {
    auto c = quick_case("softmax", protocol, 320);
    if (protocol == "decode") c.method = "test-mean";
    c.inputs = inputs;
    const auto record = measure(c);
    EXPECT_TRUE(record.measured()) << record.text("reason");
    return record.number("max_abs_error");
  };
  EXPECT_NE(error("forward", "normal"), error("forward", "clustered"));
  EXPECT_NE(error("forward", "normal"), error("forward", "repeated"));
  error("decode", "clustered");
  auto c = quick_case("softmax", "forward");
  c.inputs = "skewed";
  EXPECT_CONTAINS(expect_failed_decoding(c, kind::error).text("reason"),
                  "inputs = 'skewed', expected normal, clustered, repeated, offset, scaled, outliers or file:PATH");
}

}  // namespace
}  // namespace attnbench
