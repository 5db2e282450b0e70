// Tests of the analysis of a whole sweep: memory budgets, implausible records and its JSON.
#include "harness/analysis/analysis.h"

#include "tests/harness/analysis/analysis_fixture.h"

namespace attnbench {
namespace {

TEST_F(AnalysisTest, FindsTheLongestLengthThatFitsAMemoryBudget) {
  add_lengths(
      "softmax", [](double n) { return n; }, [](double n) { return n * n; }, 512, 4096);
  Case c;
  c.method = "softmax";
  c.query_len = 8192;
  c.batch = 4;
  c.threads = 1;
  c.complete();
  Record skipped(c);
  skipped.set_skipped(kind::predicted_oom, "needs too much");
  skipped.set("predicted_peak_bytes", 4.0 * 8192 * 8192);
  skipped.set("memory_limit_bytes", int64_t{200} << 20);
  records_.push_back(skipped);
  const auto fits = result({5e6, 1e8, 1e12, 10}).fits;
  ASSERT_EQ(fits.size(), 4u);
  EXPECT_EQ(fits[0].longest, 1024);
  EXPECT_EQ(fits[0].limit, "N = 2048 took 16.0 MiB");
  EXPECT_EQ(fits[1].longest, 4096);
  EXPECT_EQ(fits[1].limit, "N = 8192 needs 256 MiB by prediction");
  EXPECT_EQ(fits[2].longest, 4096);
  EXPECT_EQ(fits[2].limit, "the sweep, not the budget: its memory limit was 200 MiB, and N = 8192 needs 256 MiB by prediction");
  EXPECT_FALSE(fits[3].longest);
}

TEST_F(AnalysisTest, ImplausibleRecordsAreListedAndLeftOut) {
  add_lengths(
      "linear", [](double n) { return 1e-3 * n; }, [](double n) { return n; });
  auto& strange = add("linear", 32768, 1e-9, 1);
  strange.set("implausible", "faster than light");
  const auto analysis = result();
  EXPECT_NEAR(*order_of(analysis, "linear", "time").exponent, 1, 1e-9);
  ASSERT_EQ(analysis.implausible.size(), 1u);
  EXPECT_EQ(analysis.implausible[0]->get("query_len"), 32768);
}

TEST_F(AnalysisTest, JsonContainsNoInfinityAndNoNan) {
  add_lengths(
      "linear", [](double n) { return 1e-3 * n; }, [](double n) { return n; }, 512, 1024);
  add_lengths(
      "softmax", [](double n) { return 1e-6 * n * n; }, [](double n) { return n; }, 512, 1024);
  const auto text = result({1e9}).to_json().dump();
  EXPECT_EQ(text.find("inf"), std::string::npos);
  EXPECT_EQ(text.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace attnbench
