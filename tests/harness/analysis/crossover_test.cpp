// Tests of the comparisons of two series, on made-up records whose crossovers are known.
#include "harness/analysis/crossover.h"

#include <cmath>
#include <set>

#include "tests/harness/analysis/analysis_fixture.h"

namespace attnbench {
namespace {

class CrossoverTest : public AnalysisTest {
 protected:
  // softmax takes 1e-6·N² ms and linear 3e-3·N ms, so that they cross at N = 3000.
  void add_crossing_methods(double noise = 0.01) {
    for (int64_t n = 512; n <= 16384; n *= 2) {
      add("softmax", n, square(double(n)), bytes_of_square(double(n)), noise);
      add("linear", n, 3e-3 * double(n), double(n), noise);
    }
  }
  // Gives each record a column of nine values around its time, or around 7 times its time, that are the same factors of it.
  void set_processes(const char* column, double spread, double factor = 1) {
    for (auto& record : records_) {
      auto values = Json::array();
      for (int i = -4; i <= 4; ++i) values.push_back(factor * record.number("time_median_ms") * (1 + spread * i));
      record.set(column, values);
    }
  }
  static CrossoverVerdict verdict(const Analysis& analysis) { return crossover_of(analysis).verdict; }
};

TEST_F(CrossoverTest, TimesOfDifferentHostsAreNotCompared) {
  add_crossing_methods();
  for (auto& record : records_) record.set("host", record.text("method") == "linear" ? "n1" : "n2");
  EXPECT_THROW(crossover_of(result()), std::runtime_error);
  EXPECT_NO_THROW(crossover_of(result(), "memory"));
  for (auto& record : records_) record.set("host", "n1");
  EXPECT_NO_THROW(crossover_of(result()));
}

TEST_F(CrossoverTest, IsTheLengthAtWhichTwoSeriesCross) {
  add_crossing_methods();
  const auto analysis = result();
  const auto& found = crossover_of(analysis);
  EXPECT_EQ(found.verdict, CrossoverVerdict::crosses);
  EXPECT_EQ(found.one->method, "softmax");
  EXPECT_EQ(found.winner().method, "linear");
  EXPECT_EQ(found.loser().method, "softmax");
  EXPECT_EQ(found.differs, std::vector<std::string>{"method"});
  ASSERT_TRUE(found.length);
  EXPECT_NEAR(*found.length, 3000, 1) << "interpolation between logarithms is exact for powers";
  EXPECT_FALSE(found.other_needs_less_at_first);
  // Intervals of ±1 % for both times give one of ±√2 % for their ratio, which is proportional to the length.
  EXPECT_NEAR(found.interval.low, 3000 * (1 - std::sqrt(2) * 0.01), 3);
  EXPECT_NEAR(found.interval.high, 3000 * (1 + std::sqrt(2) * 0.01), 3);
  EXPECT_EQ(found.basis, RatioBasis::records);
}

TEST_F(CrossoverTest, APairThatNeverCrossesIsBelowFromTheFirstCommonLengthOn) {
  add_lengths("softmax", square, bytes_of_square, 1024);
  add_lengths("linear", linear, bytes_of_linear, 2048);
  const auto analysis = result();
  const auto& found = crossover_of(analysis, "memory");
  EXPECT_EQ(found.verdict, CrossoverVerdict::never);
  EXPECT_EQ(found.winner().method, "linear");
  EXPECT_EQ(found.loser().method, "softmax");
  EXPECT_EQ(found.from, 2048);
  EXPECT_FALSE(found.length);
}

TEST_F(CrossoverTest, APairThatNeverCrossesIsNotJudgedIfTheIntervalContainsZeroAtALength) {
  add_lengths(
      "softmax", [](double n) { return 1.5 * linear(n); }, bytes_of_square);
  add_lengths("linear", linear, bytes_of_linear);
  EXPECT_EQ(verdict(result()), CrossoverVerdict::never);
  set_time(records_.back(), records_.back().number("time_median_ms"), 0.9);
  const auto analysis = result();
  EXPECT_EQ(verdict(analysis), CrossoverVerdict::cannot_tell);
  EXPECT_EQ(crossover_of(analysis).doubt, Doubt::noise);
}

TEST_F(CrossoverTest, EqualMemoryIsSaidToBeEqual) {
  add_lengths("softmax", square, bytes_of_linear);
  add_lengths("linear", linear, bytes_of_linear);
  const auto analysis = result();
  EXPECT_EQ(crossover_of(analysis, "memory").verdict, CrossoverVerdict::equal);
}

TEST_F(CrossoverTest, AnIntervalOfAFactorOfTwoOrWithoutAnEndCannotTell) {
  add_crossing_methods(0.2);
  EXPECT_EQ(verdict(result()), CrossoverVerdict::crosses);
  records_.clear();
  add_crossing_methods(0.3);
  const auto wide = result();
  EXPECT_GT(crossover_of(wide).interval.high, 2 * crossover_of(wide).interval.low);
  EXPECT_EQ(crossover_of(wide).doubt, Doubt::wide);
  EXPECT_EQ(verdict(wide), CrossoverVerdict::cannot_tell);
  records_.clear();
  add_crossing_methods(0.99);
  const auto endless = result();
  EXPECT_EQ(crossover_of(endless).doubt, Doubt::wide);
  EXPECT_EQ(verdict(endless), CrossoverVerdict::cannot_tell);
}

TEST_F(CrossoverTest, MethodsOfEqualWorkCannotTell) {
  add_lengths(
      "taylor", [](double n) { return 0.5 + linear(n); }, bytes_of_linear);
  add_lengths(
      "linear", [](double n) { return 1.5 * linear(n); }, bytes_of_linear);
  EXPECT_EQ(verdict(result()), CrossoverVerdict::crosses) << "without a count of operations";
  for (auto& record : records_) record.set("flops", record.number("query_len") * (record.text("method") == "linear" ? 100 : 104));
  const auto equal = result();
  EXPECT_EQ(crossover_of(equal).doubt, Doubt::equal_work);
  EXPECT_EQ(verdict(equal), CrossoverVerdict::cannot_tell);
  records_.back().set("flops", 2 * records_.back().number("flops"));
  EXPECT_EQ(verdict(result()), CrossoverVerdict::crosses);
}

TEST_F(CrossoverTest, TheSameMethodOnTwoDevicesMayCross) {
  add_lengths("linear", linear, bytes_of_linear);
  for (auto& record : records_) record.set("flops", record.number("query_len"));
  for (auto record : std::vector<Record>(records_)) {
    record.set("device", "cuda");
    set_time(record, 4 * (1 + 1e-5 * record.number("query_len")), 0.01);
    records_.push_back(record);
  }
  const auto analysis = result();
  EXPECT_EQ(verdict(analysis), CrossoverVerdict::crosses) << "a device is compared although the work is equal";
  EXPECT_NEAR(*crossover_of(analysis).length, 1010, 30);
  EXPECT_EQ(crossover_of(analysis).winner().setting.at("device"), "cuda");
}

TEST_F(CrossoverTest, ACrossoverThatIsUndoneAtALongerLengthCannotTell) {
  add_crossing_methods();
  set_time(records_.back(), records_.back().number("time_median_ms") * 6, 0.01);
  const auto analysis = result();
  EXPECT_NEAR(*crossover_of(analysis).length, 3000, 1);
  EXPECT_EQ(crossover_of(analysis).doubt, Doubt::returns);
  EXPECT_EQ(verdict(analysis), CrossoverVerdict::cannot_tell);
}

TEST_F(CrossoverTest, ProcessesOfTheSameRoundsArePaired) {
  add_crossing_methods(0.5);
  set_processes("process_medians_ms", 0.1);
  const auto analysis = result();
  const auto& found = crossover_of(analysis);
  EXPECT_EQ(found.basis, RatioBasis::processes);
  EXPECT_EQ(found.verdict, CrossoverVerdict::crosses);
  EXPECT_NEAR(found.interval.low, 3000, 1) << "what slows both cases of a round cancels";
  EXPECT_NEAR(found.interval.high, 3000, 1);
  records_.back().set("process_medians_ms", {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(crossover_of(result()).basis, RatioBasis::records) << "other numbers of processes are not paired";
}

TEST_F(CrossoverTest, RatiosToASharedBaselineArePreferred) {
  add_crossing_methods(0.5);
  // The medians of the two cases were taken in different phases of the machine, which the ratios do not show.
  for (auto& record : records_) {
    record.set("baseline", "sdpa");
    record.set("ratio_median", record.number("time_median_ms") / 7);
  }
  set_processes("process_ratios", 0.01, 1.0 / 7);
  for (auto& record : records_)
    if (record.text("method") == "linear") record.set("time_median_ms", record.number("time_median_ms") * 1.5);
  set_processes("process_medians_ms", 0.01);
  const auto analysis = result();
  EXPECT_EQ(crossover_of(analysis).basis, RatioBasis::baseline);
  EXPECT_NEAR(*crossover_of(analysis).length, 3000, 1);
  for (auto& record : records_)
    if (record.text("method") == "linear") record.set("baseline", "linear");
  const auto apart = result();
  EXPECT_EQ(crossover_of(apart).basis, RatioBasis::processes) << "ratios to different baselines are not compared";
  EXPECT_NEAR(*crossover_of(apart).length, 4500, 1);
}

TEST_F(CrossoverTest, FewRatiosToASharedBaselineAreComparedByTheirIntervals) {
  add_crossing_methods(0.5);
  for (auto& record : records_) {
    const auto ratio = record.number("time_median_ms") / 7;
    record.set("baseline", "sdpa");
    record.set("ratio_median", ratio);
    record.set("ratio_ci_low", ratio * 0.99);
    record.set("ratio_ci_high", ratio * 1.01);
  }
  const auto analysis = result();
  EXPECT_EQ(crossover_of(analysis).basis, RatioBasis::baseline);
  EXPECT_NEAR(crossover_of(analysis).interval.high, 3000 * (1 + std::sqrt(2) * 0.01), 3);
}

TEST_F(CrossoverTest, RecordsWithoutIntervalsCannotTell) {
  add_crossing_methods();
  for (auto& record : records_) record.set("time_ci_low_ms", nullptr);
  const auto analysis = result();
  EXPECT_NEAR(*crossover_of(analysis).length, 3000, 1);
  EXPECT_EQ(verdict(analysis), CrossoverVerdict::cannot_tell);
}

TEST_F(CrossoverTest, OnlyRecordsOfTheSameBatchSizeAreCompared) {
  add_crossing_methods();
  records_.back().set("batch", 1);
  const auto analysis = result();
  EXPECT_EQ(crossover_of(analysis).to, 8192);
}

// A window is compared with all keys of the same method and of others, but not with a stride of another method.
TEST_F(CrossoverTest, PatternsAreComparedWithFullAttentionOfAnyMethod) {
  const auto add_pattern = [&](const char* method, const char* pattern, const Growing& ms) {
    const auto before = records_.size();
    add_lengths(method, ms, bytes_of_linear);
    for (auto i = before; i < records_.size(); ++i) records_[i].set("pattern", pattern);
  };
  add_pattern("softmax", "all", square);
  add_pattern("linear", "all", linear);
  add_pattern("softmax", "window:512", [](double n) { return 2e-3 * n; });
  add_pattern("taylor", "strided:32", linear);
  std::set<std::string> pairs;
  const auto analysis = result();
  for (const auto& found : analysis.crossovers) {
    if (found.quantity != "time") continue;
    std::string text;
    for (const auto* side : {found.one, found.other})
      text += side->method + " " + side->setting.at("pattern").get<std::string>() + (side == found.one ? ", " : "");
    pairs.insert(text);
    if (text == "softmax all, softmax window:512") {
      EXPECT_EQ(found.differs, std::vector<std::string>{"pattern"});
      ASSERT_TRUE(found.length);
      EXPECT_NEAR(*found.length, 2000, 1);
    }
  }
  EXPECT_EQ(pairs,
            (std::set<std::string>{"softmax all, linear all", "softmax all, softmax window:512", "linear all, softmax window:512",
                                   "softmax all, taylor strided:32", "linear all, taylor strided:32"}));
}

TEST_F(CrossoverTest, OnlySeriesThatDifferInMethodOrDeviceAloneAreCompared) {
  add_lengths("linear", linear, bytes_of_linear);
  const auto on_cpu = records_;
  const auto add_changed = [&](const std::function<void(Record&)>& change) {
    for (auto record : on_cpu) {
      change(record);
      records_.push_back(record);
    }
  };
  add_changed([](Record& record) { record.set("device", "cuda"); });
  add_changed([](Record& record) { record.set("heads", 2); });
  add_changed([](Record& record) {
    record.set("method", "softmax");
    record.set("device", "cuda");
    record.set("heads", 2);
  });
  const auto analysis = result();
  EXPECT_EQ(analysis.series.size(), 4u);
  ASSERT_EQ(analysis.crossovers.size(), 2u) << "one of time and one of memory";
  EXPECT_EQ(crossover_of(analysis).differs, std::vector<std::string>{"device"});
}

}  // namespace
}  // namespace attnbench
