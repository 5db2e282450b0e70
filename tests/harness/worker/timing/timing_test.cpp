// Tests of taking samples: their number, the rule that ends the sampling, and the noise of a median.
#include "harness/worker/timing/timing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace attnbench {
namespace {

// Waits in a loop, because a sleep can last whole milliseconds too long on a loaded machine.
void spin(double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds) {
  }
}

// A plan that accepts any noise and has no time budget, so that it ends after the minimum number of samples.
SamplingPlan min_samples_only(int64_t min_samples) { return {0, min_samples, 1e9, 0, 0}; }

Samples taken(const SamplingPlan& plan, const std::function<void()>& call, const std::function<void()>& before_sample) {
  return take_samples(plan, time_on_host, call, before_sample);
}

TEST(TimeOnHost, MeasuresTheCall) {
  const auto seconds = time_on_host([] { spin(0.01); }).s;
  EXPECT_GE(seconds, 0.01);
  EXPECT_LT(seconds, 1);
}

TEST(TakeSamples, StopsAtItsNoiseTarget) {
  const auto samples = taken({0, 5, 0.5, 60, 0}, [] { spin(1e-3); }, {});
  EXPECT_EQ(samples.stop_reason, "noise_target");
  EXPECT_LE(relative_noise(samples.ms), 0.5);
  EXPECT_GE(samples.ms.size(), 6u) << "the noise of five samples counts as infinite";
  EXPECT_LT(samples.total_s, 30);
}

TEST(TakeSamples, StopsAtItsTimeBudget) {
  int calls = 0;
  const auto samples = taken({0, 5, 0.01, 0.1, 0}, [&] { spin(++calls % 2 == 0 ? 1e-3 : 4e-3); }, {});
  EXPECT_EQ(samples.stop_reason, "time_budget");
  const auto sampled_ms = std::accumulate(samples.ms.begin(), samples.ms.end(), 0.0);
  EXPECT_GE(sampled_ms, 100);
  EXPECT_LT(sampled_ms, 1000);
  EXPECT_GT(relative_noise(samples.ms), 0.01);
}

TEST(TakeSamples, TakesTheMinimumNumberOfSamplesWithoutABudget) {
  const auto five = taken({0, 5, 0, 0, 0}, [] {}, {});
  EXPECT_EQ(five.ms.size(), 5u);
  EXPECT_EQ(five.stop_reason, "time_budget");
  const auto nine = taken(min_samples_only(9), [] {}, {});
  EXPECT_EQ(nine.ms.size(), 9u);
  EXPECT_EQ(nine.stop_reason, "noise_target");
}

TEST(TakeSamples, SamplesOfShortCallsConsistOfSeveralCalls) {
  int64_t calls = 0;
  auto plan = min_samples_only(8);
  plan.min_sample_ms = 1;
  plan.warmup_s = 0.005;
  const auto samples = taken(plan, [&] { spin(2e-5), ++calls; }, {});
  EXPECT_GE(samples.calls_per_sample, 10);
  EXPECT_LE(samples.calls_per_sample, 50);
  EXPECT_EQ(calls, samples.warmup_calls + 8 * samples.calls_per_sample);
  for (const auto ms : samples.ms) {
    EXPECT_GE(ms, 0.02) << "a sample is the time of one call";
    EXPECT_GE(ms * double(samples.calls_per_sample), 0.99);
  }
}

TEST(TakeSamples, SamplesOfLongCallsConsistOfOneCall) {
  auto plan = min_samples_only(5);
  plan.min_sample_ms = 1;
  int calls = 0;
  const auto samples = taken(plan, [&] { spin(2e-3), ++calls; }, {});
  EXPECT_EQ(samples.calls_per_sample, 1);
  EXPECT_EQ(samples.warmup_calls, 1);
  EXPECT_EQ(calls, 6);
}

TEST(TakeSamples, WarmsUpForTheWarmUpTime) {
  auto plan = min_samples_only(5);
  plan.warmup_s = 0.02;
  const auto samples = taken(plan, [] { spin(1e-3); }, {});
  EXPECT_GE(samples.warmup_calls, 2);
  EXPECT_LE(samples.warmup_calls, 20);
  EXPECT_GE(samples.total_s, 0.02 + 5e-3);
}

TEST(TakeSamples, KeepsEverySampleInOrder) {
  int calls = 0;
  const auto samples = taken(min_samples_only(12), [&] { spin(++calls == 5 ? 0.05 : calls == 9 ? 0.03 : 1e-3); }, {});
  ASSERT_EQ(samples.ms.size(), 12u);
  EXPECT_GE(samples.ms[3], 50);  // the fifth call, because the first one was the warm-up
  EXPECT_GE(samples.ms[7], 30);
  EXPECT_GE(*std::min_element(samples.ms.begin(), samples.ms.end()), 1);
}

TEST(TakeSamples, BeforeSampleRunsBeforeEachSampleAndIsNotTimed) {
  int flushes = 0, calls = 0;
  const auto samples = taken(
      min_samples_only(6),
      [&] {
        ++calls;
        spin(1e-4);
      },
      [&] {
        EXPECT_EQ(calls, flushes + 1) << "before_sample runs once before each sample, after the warm-up";
        ++flushes;
        spin(0.02);
      });
  EXPECT_EQ(flushes, 6);
  for (const auto ms : samples.ms) EXPECT_LT(ms, 20);
  EXPECT_LT(samples.total_s, 6 * 0.02);
}

TEST(TakeSamples, ExceptionsOfTheCallArePassedOn) {
  EXPECT_THROW(taken(min_samples_only(5), [] { throw std::runtime_error("broken"); }, {}), std::runtime_error);
}

TEST(TakeRounds, TakesWholeRoundsAndTimesTheirLastSteps) {
  int begun = 0, steps = 0, flushes = 0;
  const Stopwatch stopwatch = [&](const auto& work) {
    work();
    const double s = (steps - 1) % 6 < 2 ? 1 : 1e-3;  // the two steps that warm up are slow
    return Elapsed{s, s};
  };
  const auto rounds = [&](const SamplingPlan& plan) {
    begun = steps = flushes = 0;
    return take_rounds(
        plan, stopwatch, {2, 4},
        [&] {
          EXPECT_EQ(steps, 6 * begun) << "a round begins after the last step of the round before";
          ++begun;
        },
        [&] {
          const auto of_round = steps++ % 6;
          EXPECT_EQ(flushes, 4 * (begun - 1) + std::max(0, of_round - 1)) << "before_sample runs before each timed step";
        },
        [&] { ++flushes; });
  };
  auto samples = rounds({0, 4, 0, 0, 0});
  EXPECT_EQ(samples.ms.size(), 4u) << "at least one round is taken, even without a time budget";
  EXPECT_EQ(begun, 1);
  EXPECT_EQ(samples.stop_reason, "time_budget");
  EXPECT_EQ(samples.calls_per_sample, 1);
  EXPECT_EQ(samples.warmup_calls, 2);
  for (const auto ms : samples.ms) EXPECT_DOUBLE_EQ(ms, 1) << "the two steps that warm up are not samples";
  EXPECT_DOUBLE_EQ(samples.total_s, 2 * 1 + 4 * 1e-3);
  samples = rounds({0, 9, 1e9, 1e9, 0});
  EXPECT_EQ(samples.ms.size(), 12u);
  EXPECT_EQ(begun, 3);
  EXPECT_EQ(samples.stop_reason, "noise_target");
}

TEST(TakeRounds, BeginRoundCountsTowardsTheTimeBudget) {
  int begun = 0;
  const auto samples = take_rounds(
      {0, 4, 0, 1.0, 0}, time_on_host, {0, 8},
      [&] {
        ++begun;
        spin(0.6);
      },
      [] {}, {});
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(samples.ms.size(), 16u);
  EXPECT_LT(samples.total_s, 0.6);
}

// The stopwatch is that of a device that was busy for half of the wall time.
TEST(TakeSamples, DeviceTimeIsTheSampleAndWallTimeCountsTowardsTheBudget) {
  const Stopwatch halved = [](const std::function<void()>& work) {
    const auto wall_s = time_on_host(work).wall_s;
    return Elapsed{wall_s / 2, wall_s};
  };
  auto samples = take_samples({0, 5, 0, 0.02, 1.0}, halved, [] { spin(2e-4); }, {});
  EXPECT_GE(samples.calls_per_sample, 5) << "a call takes 0.1 ms of device time";
  ASSERT_EQ(samples.wall_ms.size(), samples.ms.size());
  double wall_s = 0;
  for (size_t i = 0; i < samples.ms.size(); ++i) {
    EXPECT_DOUBLE_EQ(samples.wall_ms[i], 2 * samples.ms[i]);
    wall_s += samples.wall_ms[i] / 1e3 * double(samples.calls_per_sample);
  }
  EXPECT_GE(wall_s, 0.02);
  EXPECT_GE(samples.total_s, wall_s);
  const auto before = samples;
  samples.divide_calls(4);
  EXPECT_EQ(samples.calls_per_sample, 4 * before.calls_per_sample);
  EXPECT_EQ(samples.warmup_calls, 4 * before.warmup_calls);
  EXPECT_DOUBLE_EQ(samples.ms[0], before.ms[0] / 4);
  EXPECT_DOUBLE_EQ(samples.wall_ms[0], before.wall_ms[0] / 4);
}

TEST(RelativeNoise, IsInfiniteForFewSamples) {
  for (size_t n = 0; n < 6; ++n) EXPECT_TRUE(std::isinf(relative_noise(std::vector<double>(n, 1.0)))) << n;
  EXPECT_EQ(relative_noise(std::vector<double>(6, 1.0)), 0);
}

TEST(RelativeNoise, AgreesWithValuesComputedByHand) {
  // n = 6: the ranks 3 ± 1.96·√6/2 = 3 ± 2.40 are the whole range. The noise is half of that range, (6 − 1)/2, over the upper
  // median 4.
  EXPECT_DOUBLE_EQ(relative_noise({6, 1, 4, 3, 5, 2}), 2.5 / 4);
  // n = 10: the ranks 5 ± 3.10 are ranks 1 and 9, counted from 0, which have the values 2 and 10.
  EXPECT_DOUBLE_EQ(relative_noise({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), 4.0 / 6);
  // n = 100: the ranks 50 ± 9.8 are ranks 40 and 60, which have the values 41 and 61.
  std::vector<double> hundred(100);
  std::iota(hundred.rbegin(), hundred.rend(), 1.0);
  EXPECT_DOUBLE_EQ(relative_noise(hundred), 10.0 / 51);
  // One outlier adds no noise to the median.
  hundred[0] = 1e9;
  EXPECT_DOUBLE_EQ(relative_noise(hundred), 10.0 / 51);
}

// relative_noise() chooses the ranks of its interval by a normal approximation. By the exact binomial distribution, the interval
// still contains the median with a probability close to 95 %.
TEST(RelativeNoise, ItsIntervalContainsTheMedianWithAProbabilityOfAbout95Percent) {
  for (int n = 6; n <= 200; ++n) {
    // Finds the ranks of the interval: a step between two samples makes noise only if it lies within the interval.
    int low = n, high = -1;
    for (int step = 1; step < n; ++step) {
      std::vector<double> samples(size_t(n), 1.0);
      std::fill(samples.begin() + step, samples.end(), 2.0);
      if (relative_noise(samples) > 0) {
        low = std::min(low, step - 1);
        high = std::max(high, step);
      }
    }
    // P(low < B ≤ high) for the number B of samples below the median, B ~ Binomial(n, ½).
    double coverage = 0;
    for (int below = low + 1; below <= high; ++below)
      coverage += std::exp(std::lgamma(n + 1) - std::lgamma(below + 1) - std::lgamma(n - below + 1) - n * std::log(2));
    EXPECT_GE(coverage, 0.947) << n;
    EXPECT_LE(coverage, 0.99) << n;
  }
}

}  // namespace
}  // namespace attnbench
