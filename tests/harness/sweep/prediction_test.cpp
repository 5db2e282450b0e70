// Tests of predicting times and memory, from made-up plans and ceilings, and of predicting what the recorded sweeps took.
#include "harness/sweep/prediction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "harness/records/record_folders.h"
#include "harness/records/records_by_case.h"
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
  EXPECT_DOUBLE_EQ(TimePredictor(Ceilings::nominal(2)).predict(record), 500);
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

constexpr auto& kCosts = kProcessCosts;

// A planned case of one process, whose inputs are so small that they take no time.
Record planned_case() {
  Case c;
  c.method = "linear";
  c.heads = c.head_dim = c.value_dim = 1;
  c.query_len = 1;
  c.min_samples = 5;
  c.time_budget_s = 2;
  c.warmup_s = 0.05;
  c.noise_target = 0;
  c.deadline_s = 30;
  c.complete();
  Record planned(c);
  planned.set("min_calls", 9);
  planned.set("min_timed_calls", 5);
  planned.set("predicted_peak_bytes", 0.0);
  return planned;
}

double case_s(Record planned, double call_ms, const Record* baseline = nullptr) {
  planned.set("predicted_time_ms", call_ms);
  return predicted_case_s(planned, baseline);
}

TEST(PredictedCase, DependsOnCallsTimeBudgetAndDeadline) {
  auto planned = planned_case();
  const auto fixed_s = kCosts.start_s + kCosts.small_check_s;
  // Without a noise target, samples fill the time budget. Short calls warm up for warmup_s, long ones once; three other calls are
  // no samples. Long calls are made the minimum number of times.
  EXPECT_NEAR(case_s(planned, 1), fixed_s + 0.05 + 0.003 + 2, 1e-6);
  EXPECT_NEAR(case_s(planned, 100), fixed_s + 0.4 + 2, 1e-6);
  EXPECT_NEAR(case_s(planned, 1000), fixed_s + 4 + 5, 1e-6);
  EXPECT_NEAR(case_s(planned, 1e6), 30 + kCosts.small_check_s, 1e-6);
  EXPECT_NEAR(case_s(planned, std::nan("")), fixed_s + 0.05 + 2, 1e-6);
  planned.set("min_calls", nullptr);
  EXPECT_NEAR(case_s(planned, 1000), fixed_s + 5, 1e-6) << "without a plan, each sample is one call";
  planned.set_skipped(kind::unsupported, "cannot");
  EXPECT_EQ(case_s(planned, 1000), 0);
}

TEST(PredictedCase, SamplingStopsEarlierTheWiderTheNoiseTarget) {
  auto planned = planned_case();
  std::vector<double> seconds;
  for (const double target : {0.0, 0.005, 0.01, 0.02, 0.05}) {
    planned.set("noise_target", target);
    seconds.push_back(case_s(planned, 2));
  }
  EXPECT_TRUE(std::is_sorted(seconds.rbegin(), seconds.rend()));
  EXPECT_LT(seconds.back(), kCosts.start_s + 0.2);
  EXPECT_GT(seconds.front(), kCosts.start_s + 2);
}

TEST(PredictedCase, CountsWhatAProcessDoesBesidesItsCalls) {
  const auto plain = planned_case();
  const auto more = [&](const char* column, const Json& value) {
    auto planned = plain;
    planned.set(column, value);
    return case_s(planned, 10) - case_s(plain, 10);
  };
  EXPECT_NEAR(more("python", "3.11.2"), kCosts.python_s, 1e-6);
  EXPECT_NEAR(more("sets_up", true), kCosts.setup_s, 1e-6);
  EXPECT_NEAR(more("sets_up", false), 0, 1e-6);
  EXPECT_NEAR(more("predicted_peak_bytes", 2e9), 2 * kCosts.pages_s_per_gb, 1e-6);
  // 3e8 tokens of three numbers in float32 are 3.6 GB.
  EXPECT_NEAR(more("batch", 300'000'000),
              3.6 * (kCosts.inputs_s_per_gb + kCosts.reference_s_per_gb + 5 * kCosts.quality_s_per_gb), 1e-3);
  EXPECT_NEAR(more("processes", 4), 3 * (case_s(plain, 10) - kCosts.small_check_s), 1e-6);
}

TEST(PredictedCase, ACaseAndItsBaselineStartSideBySideAndTakeTurns) {
  auto planned = planned_case(), baseline = planned_case();
  planned.set("time_budget_s", 0.3);
  planned.set("predicted_time_ms", 20.0);
  baseline.set("predicted_time_ms", 10.0);
  const auto start_s = kCosts.start_s + kCosts.small_check_s + kCosts.beside_baseline_s;
  // 15 turns and one that warms up take 30 ms for both together.
  EXPECT_NEAR(predicted_case_s(planned, &baseline), start_s + 0.05 + 0.06 + 0.05 + 0.03 + 16 * 0.03, 1e-6);
  baseline.set("python", "3.11.2");
  EXPECT_NEAR(predicted_case_s(planned, &baseline), start_s + kCosts.python_s + 0.05 + 0.06 + 0.05 + 0.03 + 16 * 0.03, 1e-6);
  // A baseline with a GB of inputs is compared with its reference beside the case.
  const auto before_s = predicted_case_s(planned, &baseline);
  baseline.set("batch", 62'500'000);
  baseline.set("protocol", "forward_backward");
  const auto per_gb = kCosts.inputs_s_per_gb + kCosts.reference_s_per_gb;
  EXPECT_NEAR(predicted_case_s(planned, &baseline) - before_s, per_gb, 1e-6);
  baseline.set("causal", true);
  EXPECT_NEAR(predicted_case_s(planned, &baseline) - before_s, per_gb + kCosts.causal_gradients_s_per_gb, 1e-6);
  // Later processes do not compare again.
  const auto of_processes = [&](int count) {
    planned.set("processes", count);
    return predicted_case_s(planned, &baseline);
  };
  const auto later_s = of_processes(4) - of_processes(3);
  EXPECT_NEAR(of_processes(1) - later_s, kCosts.small_check_s + kCosts.reference_s_per_gb + kCosts.causal_gradients_s_per_gb,
              1e-3);
  baseline.set_skipped(kind::unsupported, "cannot");
  EXPECT_EQ(predicted_case_s(planned, &baseline), predicted_case_s(planned));
}

TEST(PredictedSweep, IsThatOfItsCasesAndOfTheCeilingsOfEachRound) {
  auto planned = planned_case(), longer = planned_case(), skipped = planned_case();
  longer.set("processes", 3);
  skipped.set("processes", 8);
  skipped.set_skipped(kind::unsupported, "cannot");
  EXPECT_NEAR(predicted_sweep_s({planned, longer, skipped}, {nullptr, nullptr, nullptr}),
              predicted_case_s(planned) + predicted_case_s(longer) + 3 * kCosts.ceilings_s, 1e-9);
  EXPECT_EQ(predicted_sweep_s({skipped}, {nullptr}), 0);
}

// What is known of a recorded case before it is measured.
Record plan_of(const Record& record, const TimePredictor& predictor) {
  auto planned = record;
  if (record.measured()) planned.set("outcome", nullptr);
  if (record.has("setup_s")) planned.set("sets_up", true);  // older records do not say it otherwise
  planned.set("predicted_time_ms", predictor.predict(record));
  return planned;
}

class RecordedSweep : public testing::TestWithParam<const char*> {};

TEST_P(RecordedSweep, TookAsLongAsItsPlanPredictsWithin30Percent) {
  const auto folder = record_folders(std::string(ATTNBENCH_SWEEPS) + "/../results/" + GetParam()).front();
  const RecordsByCase records(read_records(folder));
  const auto processes = read_processes(folder);
  ASSERT_FALSE(processes.empty());
  // Processes that were added in place of disturbed ones are not predicted: how many there are depends on what else the machine
  // does.
  double took_s = 0;
  for (const auto& process : processes)
    if (process.number("process") <= process.number("processes")) took_s += process.number("worker_s");

  const TimePredictor predictor(Ceilings::nominal(2));
  std::vector<Record> planned, others;
  std::vector<std::string> baseline_keys;
  for (const auto& record : records.records()) {
    planned.push_back(plan_of(record, predictor));
    auto baseline = record;
    if (!record.text("baseline").empty()) baseline.set("method", record.text("baseline"));
    baseline_keys.push_back(record.text("baseline").empty() ? "" : baseline.key());
  }
  others.reserve(planned.size());
  std::vector<const Record*> baselines;
  for (const auto& key : baseline_keys) {
    baselines.push_back(nullptr);
    if (key.empty()) continue;
    const auto* const found = records.find(key);
    ASSERT_NE(found, nullptr) << key;
    baselines.back() = &others.emplace_back(plan_of(*found, predictor));
  }
  const auto predicted_s = predicted_sweep_s(planned, baselines);
  EXPECT_GT(predicted_s, 0.7 * took_s) << predicted_s << " s predicted, " << took_s << " s taken";
  EXPECT_LT(predicted_s, 1.3 * took_s) << predicted_s << " s predicted, " << took_s << " s taken";
}

// Without decode and latency, where recomputing softmax attention, which takes five times as long as typical rates say, is half
// of the time, and without quality, whose processes are short, so that most of its time is what a process costs on the machine at
// hand.
INSTANTIATE_TEST_SUITE_P(Of, RecordedSweep,
                         testing::Values("figure1", "rivals", "methods", "cpu-kernels", "today", "feature-maps", "linformer"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

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
