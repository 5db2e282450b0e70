// Tests of fitted exponents and of the verdicts on declared orders, on made-up records whose growth is known.
#include "harness/analysis/growth.h"

#include <cmath>
#include <random>

#include "tests/harness/analysis/analysis_fixture.h"

namespace attnbench {
namespace {

class GrowthTest : public AnalysisTest {
 protected:
  // Adds a method whose processes have times around `ms`: the logarithm of each is disturbed by `noise()`, and all those of a
  // process by a common `slow phase`.
  void add_processes(const std::string& method, const Growing& ms, const std::function<double()>& noise, size_t processes = 9,
                     int64_t from = 512, int64_t to = 4096, int64_t factor = 2) {
    std::vector<double> phases(processes);
    for (auto& phase : phases) phase = 3 * noise();
    for (int64_t n = from; n <= to; n *= factor) {
      auto medians = Json::array();
      for (const auto phase : phases) medians.push_back(4 * ms(double(n)) * std::exp(noise() + phase));
      add(method, n, ms(double(n)), 100.0 * double(n)).set("process_medians_ms", medians);
    }
  }
  std::function<double()> gaussian(double size) {
    return [this, size] { return std::normal_distribution<double>(0, size)(random_); };
  }
  std::mt19937_64 random_{7};
};

TEST_F(GrowthTest, ExponentsAreFittedAtLongLengths) {
  // At short lengths the fixed costs of a call hide the growth.
  add_lengths(
      "linear", [](double n) { return 1e-3 * n * (n < 2048 ? 5 : 1); }, bytes_of_linear);
  add_lengths("softmax", square, bytes_of_square);
  const auto analysis = result();
  const auto& time = order_of(analysis, "linear", "time");
  EXPECT_NEAR(*time.exponent, 1, 1e-9);
  EXPECT_EQ(time.from, 2048);
  EXPECT_EQ(time.to, 16384);
  EXPECT_EQ(time.declared, "O(N)");
  EXPECT_EQ(time.verdict(), GrowthVerdict::consistent);
  EXPECT_NEAR(*order_of(analysis, "softmax", "memory").exponent, 2, 1e-6);
  EXPECT_EQ(verdict_of(analysis, "softmax", "time"), GrowthVerdict::consistent);
}

TEST_F(GrowthTest, AFitUsesOneBatchSizeOnly) {
  // As in a sweep with a fixed number of tokens: the batch is 1 from N = 16384 on. The fixed costs of a call are 10 ms, so the
  // times per sample of shrinking batches grow faster than those of one batch size.
  for (int64_t n = 512; n <= 65536; n *= 2) {
    const auto batch = std::max<int64_t>(1, 16384 / n);
    add("linear", n, 10 / double(batch) + 1e-3 * double(n), double(n), 0.01, batch);
  }
  const auto analysis = result();
  const auto& order = order_of(analysis, "linear", "time");
  EXPECT_EQ(order.batch, 1);
  EXPECT_EQ(order.from, 16384);
  EXPECT_EQ(order.lengths, 3u);
  EXPECT_LT(*order.exponent, 1);
}

TEST_F(GrowthTest, OfSeveralBatchSizesTheOneThatReachesFurthestIsFitted) {
  for (int64_t n = 512; n <= 4096; n *= 2) add("linear", n, double(n), double(n), 0.01, 8);
  for (int64_t n = 2048; n <= 8192; n *= 2) add("linear", n, double(n), double(n), 0.01, 2);
  add("linear", 16384, 1, 1, 0.01, 1);
  const auto analysis = result();
  EXPECT_EQ(order_of(analysis, "linear", "time").batch, 2);
  EXPECT_EQ(order_of(analysis, "linear", "time").to, 8192);
}

TEST_F(GrowthTest, WithoutThreeLengthsOfABatchSizeTheVerdictIsCannotTell) {
  for (int64_t n = 512; n <= 4096; n *= 2) add("linear", n, double(n), double(n), 0.01, 4096 / n);
  const auto analysis = result();
  const auto& order = order_of(analysis, "linear", "time");
  EXPECT_FALSE(order.exponent);
  EXPECT_EQ(order.verdict(), GrowthVerdict::cannot_tell);
  EXPECT_EQ(order.lengths, 1u);
  EXPECT_EQ(verdict_of(analysis, "linear", "memory"), GrowthVerdict::cannot_tell);
  EXPECT_EQ(analysis.growth.tests, 0u);
}

TEST_F(GrowthTest, AWideGridIsFittedAtItsThreeLongestLengths) {
  add_lengths("linear", linear, bytes_of_linear, 16, 65536, 4);
  const auto analysis = result();
  const auto& order = order_of(analysis, "linear", "time");
  EXPECT_EQ(order.from, 4096);
  EXPECT_EQ(order.lengths, 3u);
}

TEST_F(GrowthTest, GrowthFasterThanDeclaredIsAContradiction) {
  add_lengths("linear", square, bytes_of_linear);
  add_lengths(
      "lsh:rounds=2", [](double n) { return 1e-5 * n * std::log2(n); }, [](double n) { return 100 * std::pow(n, 1.5); });
  const auto analysis = result();
  EXPECT_EQ(verdict_of(analysis, "linear", "time"), GrowthVerdict::contradicts);
  EXPECT_EQ(verdict_of(analysis, "linear", "memory"), GrowthVerdict::consistent);
  EXPECT_EQ(verdict_of(analysis, "lsh:rounds=2", "time"), GrowthVerdict::consistent);
  EXPECT_EQ(verdict_of(analysis, "lsh:rounds=2", "memory"), GrowthVerdict::contradicts);
}

// Seven processes agree that 4096 to 8192 is a step of 2.7, since the data outgrow a cache there. The other steps are of order 2.
TEST_F(GrowthTest, ASingleSteepStepIsNoContradiction) {
  add_lengths(
      "softmax", [](double n) { return square(n) * (n > 4096 ? 1.6 : 1); }, bytes_of_square);
  for (auto& record : records_) {
    const auto ms = record.number("time_median_ms");
    record.set("process_medians_ms", Json::array({ms, ms * 1.001, ms * 0.999, ms * 1.002, ms * 0.998, ms * 1.001, ms}));
  }
  const auto analysis = result();
  const auto& order = order_of(analysis, "softmax", "time");
  EXPECT_GT(order.interval.low, 2 + kExponentMargin) << "the test must not pass for another reason";
  EXPECT_EQ(order.verdict(), GrowthVerdict::cannot_tell);
}

TEST_F(GrowthTest, GrowthSlowerThanDeclaredIsConsistent) {
  add_lengths("softmax", linear, bytes_of_linear);
  const auto analysis = result();
  EXPECT_EQ(verdict_of(analysis, "softmax", "time"), GrowthVerdict::consistent_below);
  EXPECT_EQ(verdict_name(verdict_of(analysis, "softmax", "memory")), "consistent with");
}

TEST_F(GrowthTest, GrowthWithinTheNoiseOfTheDeclaredOneCannotBeTold) {
  for (const auto& [n, factor] : {std::pair<int64_t, double>{2048, 0.5}, {4096, 1.4}, {8192, 0.8}, {16384, 1.9}})
    add("linear", n, 1e-3 * double(n) * factor, 1e5);
  const auto analysis = result();
  EXPECT_GT(*order_of(analysis, "linear", "time").exponent, 1.3);
  EXPECT_EQ(verdict_of(analysis, "linear", "time"), GrowthVerdict::cannot_tell);
  EXPECT_EQ(order_of(analysis, "linear", "time").basis, ExponentBasis::points);
}

TEST_F(GrowthTest, MemoryThatDoesNotGrowAlongALineCannotBeTold) {
  add_lengths("linear", linear, [](double n) { return 100 * n + 0.01 * n * n; });
  const auto analysis = result();
  const auto& memory = order_of(analysis, "linear", "memory");
  EXPECT_EQ(memory.basis, ExponentBasis::counted);
  EXPECT_LT(memory.interval.low, 1.25);
  EXPECT_GT(memory.interval.high, 1.5);
  EXPECT_EQ(memory.verdict(), GrowthVerdict::contradicts);
  records_.clear();
  add_lengths("linear", linear, [](double n) { return 100 * n + 0.004 * n * n; });
  EXPECT_EQ(verdict_of(result(), "linear", "memory"), GrowthVerdict::cannot_tell);
}

TEST_F(GrowthTest, DecodingIsComparedWithTheOrderOfOneStep) {
  add_lengths(
      "linear", constant, [](double) { return 5000; }, 16, 65536, 4);
  add_lengths(
      "softmax", [](double n) { return square(n) * n; }, bytes_of_square);
  for (auto& record : records_) record.set("protocol", "decode");
  const auto analysis = result();
  EXPECT_EQ(order_of(analysis, "linear", "time").declared, "O(1)");
  EXPECT_EQ(verdict_of(analysis, "linear", "time"), GrowthVerdict::consistent);
  EXPECT_EQ(verdict_of(analysis, "linear", "memory"), GrowthVerdict::consistent);
  EXPECT_EQ(verdict_of(analysis, "softmax", "time"), GrowthVerdict::contradicts);
}

TEST_F(GrowthTest, MethodsThatDeclareNothingHaveAnExponentAndNoVerdict) {
  add_lengths("unknown", linear, bytes_of_linear);
  const auto analysis = result();
  EXPECT_NEAR(*order_of(analysis, "unknown", "time").exponent, 1, 1e-9);
  EXPECT_EQ(verdict_of(analysis, "unknown", "time"), GrowthVerdict::none);
  EXPECT_EQ(analysis.growth.tests, 0u);
}

TEST_F(GrowthTest, TheIntervalRestsOnTheSlopeOfEachProcess) {
  // Slow phases of whole processes cancel: only the noise of single medians widens the interval.
  add_processes("linear", linear, gaussian(0.02));
  const auto analysis = result();
  const auto& order = order_of(analysis, "linear", "time");
  EXPECT_EQ(order.basis, ExponentBasis::processes);
  EXPECT_LT(order.interval.low, 1);
  EXPECT_GT(order.interval.high, 1);
  EXPECT_GT(order.interval.high - order.interval.low, 0.005);
  EXPECT_LT(order.interval.high - order.interval.low, 0.1);
  EXPECT_EQ(order.verdict(), GrowthVerdict::consistent);
}

TEST_F(GrowthTest, NoisyProcessesWidenTheIntervalEvenIfThePointsLieOnALine) {
  add_processes("linear", square, gaussian(2));
  const auto analysis = result();
  EXPECT_NEAR(*order_of(analysis, "linear", "time").exponent, 2, 1.5);
  EXPECT_EQ(verdict_of(analysis, "linear", "time"), GrowthVerdict::cannot_tell)
      << "the medians of the records grow exactly with the square, but the processes do not support that";
}

TEST_F(GrowthTest, PointsOffTheLineWidenTheIntervalOfProcesses) {
  add_processes(
      "linear", [](double n) { return n < 4096 ? linear(n) : 2 * linear(n); }, [] { return 0; });
  const auto analysis = result();
  const auto& order = order_of(analysis, "linear", "time");
  EXPECT_NEAR(order.interval.low, 1, 1e-9) << "without the longest length";
  EXPECT_NEAR(order.interval.high, 1.5, 1e-9) << "without the shortest length";
  EXPECT_EQ(order.verdict(), GrowthVerdict::cannot_tell);
}

TEST_F(GrowthTest, DifferentNumbersOfProcessesAreNotPaired) {
  add_processes("linear", linear, gaussian(0.02));
  records_.back().set("process_medians_ms", {1, 1, 1, 1, 1, 1, 1});
  const auto analysis = result();
  EXPECT_EQ(order_of(analysis, "linear", "time").basis, ExponentBasis::points);
}

TEST_F(GrowthTest, TheLevelOfEachIntervalAccountsForTheNumberOfRows) {
  add_lengths("linear", linear, bytes_of_linear);
  EXPECT_DOUBLE_EQ(result().growth.confidence(), 0.95);
  const auto alone = order_of(result(), "linear", "time").interval;
  for (const auto* method : {"linear:a=1", "linear:a=2", "linear:a=3", "linear:a=4"})
    add_lengths(method, linear, bytes_of_linear);
  const auto analysis = result();
  EXPECT_EQ(analysis.growth.tests, 5u);
  EXPECT_DOUBLE_EQ(analysis.growth.confidence(), 0.99);
  EXPECT_GE(order_of(analysis, "linear", "time").interval.high, alone.high);
  EXPECT_EQ(analysis.to_json().at("order_tests").at("tests"), 5);
}

// At the limit of the margin, every contradiction is an error. A tenth of the processes is slowed by up to a factor of three.
TEST_F(GrowthTest, TheErrorRateHoldsOverAllRowsTogether) {
  const auto disturbed = [this] {
    std::uniform_real_distribution<double> uniform(0, 1);
    return gaussian(0.03)() + (uniform(random_) < 0.1 ? std::log1p(2 * uniform(random_)) : 0);
  };
  constexpr int kSweeps = 300, kRows = 8;
  int wrong = 0;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    records_.clear();
    for (int row = 0; row < kRows; ++row)
      add_processes(
          "linear:a=" + std::to_string(row), [](double n) { return std::pow(n, 1 + kExponentMargin); }, disturbed);
    const auto analysis = result();
    wrong += std::any_of(analysis.growth.orders.begin(), analysis.growth.orders.end(), [](const Order& order) {
      return order.quantity == "time" && order.verdict() != GrowthVerdict::cannot_tell;
    });
  }
  EXPECT_LE(wrong, int(kErrorRate * kSweeps));
}

}  // namespace
}  // namespace attnbench
