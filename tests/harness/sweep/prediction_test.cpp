// Tests of predicting times and memory, from made-up plans and ceilings.
#include "harness/sweep/prediction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/support/test_ceilings.h"

namespace attnbench {
namespace {

TEST(TimePredictor, PredictsFromTheCeilingsOfTheDevice) {
  Case c;
  c.method = "linear";
  c.device = "cuda";
  c.dtype = "bfloat16";
  Record record(c);
  record.set("flops", 1e11);
  record.set("min_bytes", 1e6);
  EXPECT_DOUBLE_EQ(TimePredictor(Ceilings::from_json(with_gpu(kGpuCeilings))).predict(record), 1);
  EXPECT_TRUE(std::isnan(TimePredictor(kCeilings).predict(record)));
  EXPECT_DOUBLE_EQ(TimePredictor(Ceilings::nominal(2)).predict(record), 1000);
}

TEST(TimePredictor, LearnsTheSlowdownOfEachMethodAndSetting) {
  Case c;
  c.method = "linear";
  c.complete();
  Record record(c);
  record.set("flops", 1e9);
  record.set("min_bytes", 1e6);
  TimePredictor predictor(kCeilings);
  EXPECT_DOUBLE_EQ(predictor.predict(record), 10);  // 1e9 operations at 100 GFLOP/s
  record.set("min_bytes", 1e9);
  EXPECT_DOUBLE_EQ(predictor.predict(record), 50);  // 1e9 bytes at 20 GB/s
  EXPECT_FALSE(predictor.has_seen(record));
  record.set("time_median_ms", 200.0);
  predictor.learn(record);
  EXPECT_TRUE(predictor.has_seen(record));

  auto longer = record;
  longer.set("query_len", 4096);
  longer.set("min_bytes", 2e9);
  EXPECT_DOUBLE_EQ(predictor.predict(longer), 400);
  for (const auto& [axis, value] :
       {std::pair<const char*, Json>{"method", "softmax"}, {"protocol", "forward_backward"}, {"dtype", "bfloat16"}}) {
    auto other = record;
    other.set(axis, value);
    EXPECT_FALSE(predictor.has_seen(other)) << axis;
  }
  EXPECT_TRUE(std::isnan(predictor.predict(Record(c))));
  auto unmeasured = longer;
  unmeasured.set("time_median_ms", nullptr);
  predictor.learn(unmeasured);
  EXPECT_DOUBLE_EQ(predictor.predict(longer), 400);
}

TEST(TimePredictor, TakesTheFastestSimilarMeasurement) {
  Case c;
  c.method = "linear";
  c.complete();
  Record record(c);
  record.set("min_bytes", 1e6);
  record.set("flops", 1e9);  // at least 10 ms
  TimePredictor predictor(kCeilings);
  for (const double ms : {30.0, 20.0, 200.0}) {
    record.set("time_median_ms", ms);
    predictor.learn(record);
  }
  EXPECT_DOUBLE_EQ(predictor.predict(record), 20);
  // Fixed costs weigh more in a call that does less than a hundredth of the work, so it says nothing about this one.
  auto longer = record;
  longer.set("flops", 1e11);
  EXPECT_DOUBLE_EQ(predictor.predict(longer), 2000);
  EXPECT_TRUE(predictor.has_seen(longer));
  longer.set("flops", 1.1e11);
  EXPECT_DOUBLE_EQ(predictor.predict(longer), 1100);
  EXPECT_FALSE(predictor.has_seen(longer));
}

TEST(PredictedCase, DependsOnSamplesTimeBudgetAndDeadline) {
  Case c;
  c.method = "linear";
  c.min_samples = 5;
  c.time_budget_s = 2;
  c.deadline_s = 30;
  c.complete();
  Record planned(c);
  planned.set("min_calls", 9);
  planned.set("min_timed_calls", 5);
  // Short calls fill the time budget, but a case makes at most a thousand of them; long calls are made the minimum number of
  // times.
  EXPECT_NEAR(predicted_case_s(planned, 1), 0.6 + 0.004 + 1, 1e-9);
  EXPECT_NEAR(predicted_case_s(planned, 100), 0.6 + 0.4 + 2, 1e-9);
  EXPECT_NEAR(predicted_case_s(planned, 1000), 0.6 + 4 + 5, 1e-9);
  EXPECT_EQ(predicted_case_s(planned, 1e6), 30);
  EXPECT_NEAR(predicted_case_s(planned, std::nan("")), 0.6, 1e-9);
  planned.set_skipped(kind::unsupported, "cannot");
  EXPECT_EQ(predicted_case_s(planned, 1000), 0);
}

TEST(PredictedCase, MakesTheNumberOfCallsOfThePlan) {
  Case c;
  c.method = "linear";
  c.min_samples = 5;
  c.time_budget_s = 2;
  c.deadline_s = 100;
  c.complete();
  Record planned(c);
  EXPECT_NEAR(predicted_case_s(planned, 1000), 0.6 + 5, 1e-9) << "without a plan, each sample is one call";
  planned.set("min_calls", 37);
  planned.set("min_timed_calls", 32);
  EXPECT_NEAR(predicted_case_s(planned, 1000), 0.6 + 5 + 32, 1e-9);
  EXPECT_NEAR(predicted_case_s(planned, 10), 0.6 + 0.05 + 2, 1e-9);
}

TEST(Predict, MoreCallsLeadToATimeoutAtAShorterTimeOfACall) {
  const TimePredictor predictor(kCeilings);
  const auto kind_of = [&](int64_t min_calls, double call_s) {
    Case c;
    c.method = "linear";
    c.deadline_s = 20;
    c.complete();
    Record planned(c);
    planned.set("min_calls", min_calls);
    planned.set("min_timed_calls", min_calls - 4);
    planned.set("flops", call_s * 100e9);
    planned.set("min_bytes", 1.0);
    predict(planned, predictor);
    return planned.text("failure_kind");
  };
  // A case is skipped if its 9 or 37 calls take longer than twice the deadline.
  EXPECT_EQ(kind_of(9, 4.4), "");
  EXPECT_EQ(kind_of(9, 4.5), "predicted_timeout");
  EXPECT_EQ(kind_of(37, 1.05), "");
  EXPECT_EQ(kind_of(37, 1.1), "predicted_timeout");
}

TEST(Predict, MemoryIncludesThePreparationOfADecodingState) {
  Case c;
  c.method = "linear";
  c.protocol = "decode";
  c.memory_limit_bytes = 1000;
  c.complete();
  const auto kind_of = [&](double peak, const Json& setup) {
    Record planned(c);
    planned.set("predicted_peak_bytes", peak);
    planned.set("predicted_setup_bytes", setup);
    EXPECT_EQ(predicted_need_bytes(planned), std::max(peak, setup.is_null() ? 0 : setup.get<double>()));
    predict(planned, TimePredictor(kCeilings));
    return planned.text("failure_kind");
  };
  EXPECT_EQ(kind_of(900, nullptr), "");
  EXPECT_EQ(kind_of(900, 1000), "");
  EXPECT_EQ(kind_of(900, 1001), "predicted_oom");
  EXPECT_EQ(kind_of(1001, 900), "predicted_oom");
}

}  // namespace
}  // namespace attnbench
