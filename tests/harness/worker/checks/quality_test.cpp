// Tests of how close outputs are to exact attention: the numbers of each row, and what the worker records of a case.
#include "harness/worker/checks/quality.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attn/reference.h"
#include "harness/worker/measure.h"
#include "tests/support/errors_of.h"
#include "tests/support/method_helpers.h"

namespace attnbench {
namespace {

constexpr double kNear = 1e-12;

// The numbers of one row by their definitions, one number at a time.
struct ByHand {
  double error, cosine, mean_error, mean_cosine, effective_keys;
};

ByHand by_hand(const at::Tensor& q_row, const at::Tensor& keys, const at::Tensor& values, const at::Tensor& output_row) {
  const auto q = q_row.accessor<double, 1>(), out = output_row.accessor<double, 1>();
  const auto k = keys.accessor<double, 2>(), v = values.accessor<double, 2>();
  std::vector<double> weights;
  double total = 0;
  for (int64_t j = 0; j < k.size(0); ++j) {
    double logit = 0;
    for (int64_t d = 0; d < k.size(1); ++d) logit += q[d] * k[j][d];
    weights.push_back(std::exp(logit / std::sqrt(double(k.size(1)))));
    total += weights.back();
  }
  double entropy = 0;
  std::vector<double> exact(size_t(v.size(1))), mean(size_t(v.size(1)));
  for (int64_t j = 0; j < k.size(0); ++j) {
    const auto share = weights[size_t(j)] / total;
    entropy -= share * std::log(share);
    for (size_t m = 0; m < exact.size(); ++m) {
      exact[m] += share * v[j][int64_t(m)];
      mean[m] += v[j][int64_t(m)] / double(k.size(0));
    }
  }
  double norm = 0, distance = 0, product = 0, out_norm = 0, mean_distance = 0, mean_product = 0, mean_norm = 0;
  for (size_t m = 0; m < exact.size(); ++m) {
    const auto o = out[int64_t(m)];
    norm += exact[m] * exact[m];
    out_norm += o * o;
    mean_norm += mean[m] * mean[m];
    distance += (o - exact[m]) * (o - exact[m]);
    mean_distance += (mean[m] - exact[m]) * (mean[m] - exact[m]);
    product += o * exact[m];
    mean_product += mean[m] * exact[m];
  }
  return {std::sqrt(distance / norm), product / std::sqrt(norm * out_norm), std::sqrt(mean_distance / norm),
          mean_product / std::sqrt(norm * mean_norm), std::exp(entropy)};
}

TEST(RowQualities, AgreeWithACalculationByHand) {
  const auto problem = attn::problem_of({9, 9, 5, 3}, at::kDouble, attn::Masking::causal, 1, 1);
  const auto inputs = attn::inputs_of(problem, attn::Protocol::forward);
  const auto output = at::randn({1, 1, 9, 3}, at::kDouble);
  const auto rows = at::arange(9);
  RowQualities qualities;
  qualities.add(output, *attn::make_method("linear")->exact_attention(inputs, rows), inputs.mask.visible_pairs(rows, 9, 9),
                inputs.v);
  ASSERT_EQ(qualities.count(), 8U) << "row 0 sees a single key";
  for (int64_t row = 1; row < 9; ++row) {
    const auto expected = by_hand(inputs.q[0][0][row], inputs.k[0][0].narrow(0, 0, row + 1).contiguous(),
                                  inputs.v[0][0].narrow(0, 0, row + 1).contiguous(), output[0][0][row]);
    const auto i = size_t(row - 1);
    EXPECT_NEAR(qualities.errors[i], expected.error, kNear);
    EXPECT_NEAR(qualities.cosines[i], expected.cosine, kNear);
    EXPECT_NEAR(qualities.mean_errors[i], expected.mean_error, kNear);
    EXPECT_NEAR(qualities.mean_cosines[i], expected.mean_cosine, kNear);
    EXPECT_NEAR(qualities.zero_errors[i], 1, kNear);
    EXPECT_NEAR(qualities.effective_keys[i], expected.effective_keys, kNear);
    EXPECT_NEAR(qualities.effective_shares[i], expected.effective_keys / double(row + 1), kNear);
  }
}

TEST(RowQualities, LeaveOutRowsThatSeeFewerThanTwoKeys) {
  auto inputs = attn::inputs_of(attn::problem_of({6, 6, 5, 3}, at::kDouble, attn::Masking::none, 1, 1), attn::Protocol::forward);
  const auto rows = at::arange(6);
  for (const auto& [keys, counted] : {std::pair{0, 0U}, {1, 0U}, {2, 6U}}) {
    inputs.mask.key_lengths = at::full({1}, keys, at::kLong);
    RowQualities qualities;
    qualities.add(at::ones({1, 1, 6, 3}, at::kDouble), *attn::make_method("linear")->exact_attention(inputs, rows),
                  inputs.mask.visible_pairs(rows, 6, 6).expand({1, 1, 6, 6}),
                  attn::zero_where(inputs.v, inputs.mask.hidden_keys(6)));
    EXPECT_EQ(qualities.count(), counted) << keys;
    Record record;
    qualities.set_columns(record);
    EXPECT_EQ(record.has("quality_row_error_median"), counted > 0);
  }
}

TEST(RowQualities, QuantilesAreInterpolatedBetweenRows) {
  RowQualities qualities;
  for (int i = 0; i <= 100; ++i) qualities.errors.push_back(i);
  qualities.cosines = qualities.mean_errors = qualities.mean_cosines = qualities.zero_errors = qualities.effective_keys =
      qualities.effective_shares = qualities.errors;
  Record record;
  qualities.set_columns(record);
  EXPECT_EQ(record.get("quality_rows"), 101);
  for (const auto* of : {"quality_row_error", "quality_cosine"}) {
    EXPECT_DOUBLE_EQ(record.number(of + std::string("_p5")), 5);
    EXPECT_DOUBLE_EQ(record.number(of + std::string("_median")), 50);
    EXPECT_DOUBLE_EQ(record.number(of + std::string("_p95")), 95);
  }
}

TEST(WithOtherSeed, ChangesTheOptionOfMethodsThatHaveOne) {
  EXPECT_EQ(with_other_seed("linear", 3), "linear");
  EXPECT_EQ(with_other_seed("favor", 0), "favor");
  EXPECT_EQ(with_other_seed("favor", 3), "favor:seed=3");
  EXPECT_EQ(with_other_seed("favor:seed=5,features=16", 3), "favor:features=16,seed=8");
  const auto max = attn::kMaxSeed;
  EXPECT_EQ(with_other_seed("lsh-4:seed=" + std::to_string(max), 2), "lsh-4:seed=" + std::to_string(max - 2));
}

Case quick_case(const std::string& method, int64_t query_len = 300) {
  Case c;
  c.method = method;
  c.batch = 2;
  c.heads = 3;
  c.query_len = query_len;
  c.threads = 1;
  c.warmup_s = 0;
  c.time_budget_s = 0;
  c.max_disturbance = 1e6;  // all samples count, however busy the machine is
  c.complete();
  return c;
}

Record quality_of(const Case& c) {
  auto record = measure(c, {.quality = true});
  EXPECT_TRUE(record.measured()) << record.text("reason");
  return record;
}

TEST(Quality, OfExactMethodsIsThatOfRounding) {
  for (const auto* method : {"softmax", "sdpa"}) {
    const auto record = quality_of(quick_case(method));
    EXPECT_LT(record.number("quality_row_error_p95"), 1e-5) << method;
    EXPECT_NEAR(record.number("quality_cosine_p5"), 1, 1e-6) << method;
    // 64 rows of each of two heads of one batch entry, for five seeds
    EXPECT_EQ(record.get("quality_rows"), 5 * 2 * 64) << method;
    EXPECT_EQ(record.numbers("quality_seed_row_errors").size(), 5U) << method;
    EXPECT_FALSE(record.has("quality_not_scored")) << method;
    EXPECT_EQ(record.number("quality_of_zero_row_error_median"), 1) << method;
  }
}

// The logits of normal inputs are normal with the standard deviation c, the concentration. The entropy of many such keys is that
// of N keys less c²/2.
TEST(Quality, EffectiveKeysOfNormalInputsAreKnown) {
  auto c = quick_case("softmax", 4000);
  c.heads = c.kv_heads = c.value_heads = c.batch = 1;
  c.quality_seeds = 2;
  for (const double concentration : {0.0, 0.5, 1.0, 2.0}) {
    c.concentration = concentration;
    const auto record = quality_of(c);
    const auto share = std::exp(-concentration * concentration / 2);
    EXPECT_NEAR(record.number("quality_effective_share"), share, 0.05) << concentration;
    EXPECT_NEAR(record.number("quality_effective_keys"), 4000 * share, 200) << concentration;
  }
}

TEST(Quality, OfTheMeanOfVIsPerfectForUniformAttentionAndPoorForPeakedAttention) {
  auto c = quick_case("linear");
  c.concentration = 0;
  auto record = quality_of(c);
  EXPECT_LT(record.number("quality_of_mean_row_error_median"), 1e-12);
  EXPECT_NEAR(record.number("quality_of_mean_cosine_median"), 1, 1e-12);
  EXPECT_NEAR(record.number("quality_effective_share"), 1, 1e-12);
  c.causal = true;  // each row has its own number of keys
  EXPECT_NEAR(quality_of(c).number("quality_effective_share"), 1, 1e-12);
  c.causal = false;
  c.concentration = 8;
  record = quality_of(c);
  EXPECT_GT(record.number("quality_of_mean_row_error_median"), 0.8);
  EXPECT_LT(record.number("quality_of_mean_cosine_median"), 0.6);
}

TEST(Quality, CountsTheRowsThatAreNotTriviallyExact) {
  auto c = quick_case("linear", 20);
  c.causal = true;
  EXPECT_EQ(quality_of(c).get("quality_rows"), 5 * 2 * 19);
  c.quality_seeds = 3;
  EXPECT_EQ(quality_of(c).get("quality_rows"), 3 * 2 * 19);
  c.key_lengths = "1";
  const auto record = quality_of(c);
  EXPECT_FALSE(record.has("quality_rows"));
  EXPECT_EQ(record.text("quality_not_scored"), "no row sees two keys or more");
}

TEST(Quality, IsLeftOutWhereItWouldSayNothing) {
  auto c = quick_case("linformer");
  auto record = quality_of(c);
  EXPECT_FALSE(record.has("quality_row_error_median"));
  EXPECT_CONTAINS(record.text("quality_not_scored"), "linformer has parameters that a model trains");
  c = quick_case("linear");
  c.quality_seeds = 0;
  record = quality_of(c);
  EXPECT_FALSE(record.has("quality_row_error_median"));
  EXPECT_EQ(record.text("quality_not_scored"), "quality_seeds is 0");
  EXPECT_FALSE(measure(quick_case("linear")).has("quality_row_error_median")) << "it was not asked for";
}

// LSH attention takes the queries as keys, so that its exact counterpart is not softmax attention of q and k.
TEST(Quality, OfLshIsMeasuredAgainstItsOwnExactAttention) {
  const auto record = quality_of(quick_case("lsh-1:chunk=512"));  // a single chunk
  EXPECT_LT(record.number("quality_row_error_p95"), 1e-4);
  const auto chunks = quality_of(quick_case("lsh-1:chunk=16"));
  EXPECT_GT(chunks.number("quality_row_error_median"), 0.05);
  EXPECT_LT(chunks.number("quality_row_error_p5"), chunks.number("quality_row_error_median"));
  EXPECT_GT(chunks.number("quality_row_error_p95"), chunks.number("quality_row_error_median"));
}

TEST(Quality, SeedsAreThoseOfTheInputsAndOfTheMethod) {
  auto c = quick_case("favor:features=16", 40);
  const auto of_seeds = quality_of(c).numbers("quality_seed_row_errors");
  ASSERT_EQ(of_seeds.size(), 5U);
  c.quality_seeds = 1;
  for (int64_t i = 0; i < 5; ++i) {
    c.seed = i;
    c.method = i == 0 ? "favor:features=16" : "favor:features=16,seed=" + std::to_string(i);
    EXPECT_EQ(quality_of(c).numbers("quality_seed_row_errors"), std::vector{of_seeds[size_t(i)]}) << i;
    for (int64_t j = 0; j < i; ++j) EXPECT_NE(of_seeds[size_t(i)], of_seeds[size_t(j)]);
  }
  // The random numbers differ where the inputs are the same, and the other way round.
  c.seed = 0;
  EXPECT_NE(quality_of(c).numbers("quality_seed_row_errors"), std::vector{of_seeds[0]});
  c.seed = 4;
  c.method = "favor:features=16";
  EXPECT_NE(quality_of(c).numbers("quality_seed_row_errors"), std::vector{of_seeds[4]});
}

}  // namespace
}  // namespace attnbench
