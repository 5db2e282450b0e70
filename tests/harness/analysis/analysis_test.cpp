// Tests of the analysis, on made-up records whose growth and crossovers are known.
#include "harness/analysis/analysis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/support/errors_of.h"

namespace attnbench {
namespace {

const Json kMethods = {{{"name", "linear"}, {"time_order", "O(N)"}, {"memory_order", "O(N)"}},
                       {{"name", "softmax"}, {"time_order", "O(N²)"}, {"memory_order", "O(N²)"}},
                       {{"name", "lsh"}, {"time_order", "O(N log N)"}, {"memory_order", "O(N log N)"}}};

using Growth = std::function<double(double)>;

class AnalysisTest : public testing::Test {
 protected:
  // Adds a record with this time and memory per sample, and an interval of ± `noise` of the time.
  Record& add(const std::string& method, int64_t length, double ms, double bytes, double noise = 0.01) {
    Case c;
    c.method = method;
    c.query_len = length;
    c.batch = 4;
    c.threads = 1;
    c.complete();
    auto& record = records_.emplace_back(c);
    record.set("outcome", outcome::measured);
    // Records hold the values of the whole batch.
    record.set("time_median_ms", 4 * ms);
    record.set("time_ci_low_ms", 4 * ms * (1 - noise));
    record.set("time_ci_high_ms", 4 * ms * (1 + noise));
    record.set("peak_extra_bytes", int64_t(4 * bytes));
    record.set("peak_allocated_bytes", int64_t(4 * bytes) + 1000);
    return record;
  }
  // Adds a record at each power of two from `from` to `to`.
  void add_lengths(const std::string& method, const Growth& ms, const Growth& bytes, int64_t from = 512, int64_t to = 16384) {
    for (int64_t n = from; n <= to; n *= 2) add(method, n, ms(double(n)), bytes(double(n)));
  }
  Analysis result(const std::vector<double>& budgets = {}) const { return analyse(records_, kMethods, budgets); }
  static const Order& order_of(const Analysis& analysis, const std::string& method, const std::string& quantity) {
    for (const auto& order : analysis.orders)
      if (order.series->method == method && order.quantity == quantity) return order;
    throw std::runtime_error("no order of " + method);
  }
  static const Crossover& time_crossover(const Analysis& analysis) {
    for (const auto& found : analysis.crossovers)
      if (found.quantity == "time") return found;
    throw std::runtime_error("no crossover of times");
  }

  std::vector<Record> records_;
};

TEST_F(AnalysisTest, ExponentsAreFittedAtLongLengths) {
  // At short lengths the fixed costs of a call hide the growth.
  add_lengths(
      "linear", [](double n) { return 1e-3 * n * (n < 2048 ? 5 : 1); }, [](double n) { return 100 * n; });
  add_lengths(
      "softmax", [](double n) { return 1e-6 * n * n; }, [](double n) { return 8 * n * n; });
  const auto analysis = result();
  const auto& linear = order_of(analysis, "linear", "time");
  EXPECT_NEAR(linear.fit.slope, 1, 1e-9);
  EXPECT_EQ(linear.from, 2048);
  EXPECT_EQ(linear.to, 16384);
  EXPECT_EQ(linear.declared, "O(N)");
  EXPECT_FALSE(linear.contradicts());
  EXPECT_NEAR(order_of(analysis, "softmax", "memory").fit.slope, 2, 1e-6);
  EXPECT_FALSE(order_of(analysis, "softmax", "time").contradicts());
}

TEST_F(AnalysisTest, BatchSizesAtTheEndsOfAFitAreReported) {
  for (int64_t n = 512; n <= 4096; n *= 2) {
    auto& record = add("linear", n, double(n), double(n));
    record.set("batch", 8192 / n);
    record.set("time_median_ms", double(n) * double(8192 / n));
  }
  const auto analysis = result();
  const auto& order = order_of(analysis, "linear", "time");
  EXPECT_EQ(order.batch_from, 16);
  EXPECT_EQ(order.batch_to, 2);
  EXPECT_NEAR(order.fit.slope, 1, 1e-9) << "times are per sample";
}

TEST_F(AnalysisTest, GrowthFasterThanDeclaredIsAContradiction) {
  add_lengths(
      "linear", [](double n) { return 1e-6 * n * n; }, [](double n) { return 100 * n; });
  add_lengths(
      "lsh:rounds=2", [](double n) { return 1e-5 * n * std::log2(n); }, [](double n) { return 100 * std::pow(n, 1.5); });
  const auto analysis = result();
  EXPECT_TRUE(order_of(analysis, "linear", "time").contradicts());
  EXPECT_FALSE(order_of(analysis, "linear", "memory").contradicts());
  EXPECT_FALSE(order_of(analysis, "lsh:rounds=2", "time").contradicts());
  EXPECT_TRUE(order_of(analysis, "lsh:rounds=2", "memory").contradicts());
}

TEST_F(AnalysisTest, GrowthFasterThanDeclaredWithinTheNoiseIsNoContradiction) {
  for (const auto& [n, factor] : {std::pair<int64_t, double>{2048, 0.5}, {4096, 1.4}, {8192, 0.8}, {16384, 1.9}})
    add("linear", n, 1e-3 * double(n) * factor, 1e5);
  const auto analysis = result();
  EXPECT_GT(order_of(analysis, "linear", "time").fit.slope, 1.3);
  EXPECT_FALSE(order_of(analysis, "linear", "time").contradicts()) << "its interval contains the declared exponent";
}

TEST_F(AnalysisTest, DeclaredOrdersDoNotApplyToDecoding) {
  add_lengths(
      "softmax", [](double n) { return 1e-6 * n * n * n; }, [](double n) { return n; });
  for (auto& record : records_) record.set("protocol", "decode");
  const auto analysis = result();
  EXPECT_NEAR(order_of(analysis, "softmax", "time").fit.slope, 3, 1e-9);
  EXPECT_FALSE(order_of(analysis, "softmax", "time").contradicts());
}

TEST_F(AnalysisTest, CrossoverIsTheLengthAtWhichTwoSeriesCross) {
  add_lengths(
      "softmax", [](double n) { return 1e-6 * n * n; }, [](double n) { return 8 * n * n; });
  add_lengths(
      "linear", [](double n) { return 3e-3 * n; }, [](double n) { return n; });
  const auto analysis = result();
  const auto& found = time_crossover(analysis);
  EXPECT_EQ(found.one->method, "softmax");
  EXPECT_EQ(found.differs, std::vector<std::string>{"method"});
  ASSERT_TRUE(found.length);
  EXPECT_NEAR(*found.length, 3000, 1) << "interpolation between logarithms is exact for powers";
  EXPECT_FALSE(found.other_needs_less_at_first);
  // Intervals of ±1 % for both times give one of ±√2 % for their ratio, which is proportional to the length.
  EXPECT_NEAR(found.interval.low, 3000 * (1 - std::sqrt(2) * 0.01), 3);
  EXPECT_NEAR(found.interval.high, 3000 * (1 + std::sqrt(2) * 0.01), 3);
  for (const auto& other : analysis.crossovers) {
    if (other.quantity == "memory") {
      EXPECT_FALSE(other.length) << "linear needs less at every length";
      EXPECT_TRUE(other.other_needs_less_at_first);
    }
  }
}

TEST_F(AnalysisTest, OnlySeriesThatDifferInMethodOrDeviceAloneAreCompared) {
  add_lengths(
      "linear", [](double n) { return 1e-3 * n; }, [](double n) { return n; });
  const auto on_cpu = records_;
  for (auto record : on_cpu) {
    record.set("device", "cuda");
    record.set("time_median_ms", 4 * (1 + 1e-5 * record.number("query_len")));
    record.set("time_ci_low_ms", record.number("time_median_ms"));
    record.set("time_ci_high_ms", record.number("time_median_ms"));
    records_.push_back(record);
  }
  for (auto record : on_cpu) {
    record.set("heads", 2);
    records_.push_back(record);
  }
  for (auto record : on_cpu) {
    record.set("method", "softmax");
    record.set("device", "cuda");
    record.set("heads", 2);
    records_.push_back(record);
  }
  const auto analysis = result();
  EXPECT_EQ(analysis.series.size(), 4u);
  ASSERT_EQ(analysis.crossovers.size(), 2u) << "one of time and one of memory";
  const auto& found = time_crossover(analysis);
  EXPECT_EQ(found.differs, std::vector<std::string>{"device"});
  ASSERT_TRUE(found.length);
  EXPECT_NEAR(*found.length, 1010, 30);
  EXPECT_EQ(found.other->setting.at("device"), "cuda");
  EXPECT_FALSE(found.other_needs_less_at_first);
}

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
  records_.push_back(skipped);
  const auto fits = result({5e6, 1e8, 1e12, 10}).fits;
  ASSERT_EQ(fits.size(), 4u);
  EXPECT_EQ(fits[0].longest, 1024);
  EXPECT_EQ(fits[0].limit, "N = 2048 took 16.0 MiB");
  EXPECT_EQ(fits[1].longest, 4096);
  EXPECT_EQ(fits[1].limit, "N = 8192 needs 256 MiB by prediction");
  EXPECT_EQ(fits[2].longest, 4096);
  EXPECT_EQ(fits[2].limit, "N = 8192: predicted_oom");
  EXPECT_FALSE(fits[3].longest);
}

TEST_F(AnalysisTest, ImplausibleRecordsAreListedAndLeftOut) {
  add_lengths(
      "linear", [](double n) { return 1e-3 * n; }, [](double n) { return n; });
  auto& strange = add("linear", 32768, 1e-9, 1);
  strange.set("implausible", "faster than light");
  const auto analysis = result();
  EXPECT_NEAR(order_of(analysis, "linear", "time").fit.slope, 1, 1e-9);
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
