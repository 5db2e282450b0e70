// Tests of the watch on samples: what a disturbance of this process does to the shares of its samples, and what does not.
#include "harness/worker/timing/sample_watch.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>

#include "harness/statistics/disturbance.h"

namespace attnbench {
namespace {

void keep_busy(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
  }
}

void watched_sample(SampleWatch& watch, const std::function<void()>& work) {
  watch.begin();
  work();
  watch.end(1, 1);
}

TEST(SampleWatch, HasAShareForEverySample) {
  SampleWatch watch(1, 0, 0.25);
  for (int i = 0; i < 3; ++i) watched_sample(watch, [] { keep_busy(0.002); });
  watch.pause();
  watch.begin();
  keep_busy(0.002);
  watch.end(32, 32);
  EXPECT_EQ(watch.shares().size(), 35u);
  for (const auto share : watch.shares()) EXPECT_GE(share, 0);
}

// A machine that was faster in earlier processes makes every sample of this one count as disturbed.
TEST(SampleWatch, ComparesItsProbesWithTheBestOfEarlierProcesses) {
  SampleWatch watch(1, 1e-3, 0.25);
  watched_sample(watch, [] { keep_busy(0.001); });
  EXPECT_GT(watch.shares().at(0), 10);
}

// The method's own time must not matter, or else a method with two modes would lose one of them. A busy machine disturbs long
// samples more often than short ones, so the long ones are compared with samples of a method that always takes as long.
TEST(SampleWatch, AMethodWithTwoModesIsNotMadeToLookSteady) {
  constexpr double kShort = 0.0005, kLong = 0.002;
  SampleWatch of_two_modes(1, 0, 0.25), of_one_mode(1, 0, 0.25);
  std::vector<double> two_modes, one_mode;
  const auto take = [](SampleWatch& watch, std::vector<double>& samples, double seconds) {
    watched_sample(watch, [&] { keep_busy(seconds); });
    samples.push_back(seconds);
  };
  // The order is random, because the time slices of a busy processor would always end in the same sample of a fixed order.
  std::vector<int> order(300);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  for (const int i : order) {
    if (i % 3 == 2) take(of_one_mode, one_mode, kLong);
    else take(of_two_modes, two_modes, i % 3 == 0 ? kShort : kLong);
  }
  const auto kept = undisturbed(two_modes, of_two_modes.shares(), 0.25);
  const auto slow = std::count(kept.begin(), kept.end(), kLong);
  const auto expected = undisturbed(one_mode, of_one_mode.shares(), 0.25).size();
  EXPECT_GT(double(slow), 0.5 * double(expected) - 10);
  EXPECT_GT(kept.size() - size_t(slow), size_t(slow) / 2);
}

// A thread that has to share its processor waits for it, and the wait is seen even between two probes.
TEST(SampleWatch, WaitingForAProcessorIsADisturbance) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> done = false;
  std::thread thief([&] {
    while (!done) {
    }
  });
  {
    SampleWatch watch(1, 0, 0.25);
    watched_sample(watch, [] { keep_busy(0.2); });
    EXPECT_GT(watch.shares().at(0), 0.3) << "half of the processor was taken away";
    Record record;
    watch.set_columns(record);
    EXPECT_GT(record.number("run_delay_share"), 0.2);
    EXPECT_GT(record.number("involuntary_switches"), 0);
  }
  done = true;
  thief.join();
  sched_setaffinity(0, sizeof before, &before);
}

constexpr size_t kPages = 5000;

// Causes a page fault for each of kPages pages.
void touch_new_pages() {
  constexpr size_t kPage = 4096;
  auto* memory =
      static_cast<volatile char*>(mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  madvise(const_cast<char*>(memory), kPages * kPage, MADV_NOHUGEPAGE);
  for (size_t i = 0; i < kPages; ++i) memory[i * kPage] = 1;
  munmap(const_cast<char*>(memory), kPages * kPage);
}

TEST(SampleWatch, CountsPageFaultsAndTheirSystemTime) {
  SampleWatch watch(1, 0, 0.25);
  watch.begin();
  for (int call = 0; call < 2; ++call) touch_new_pages();
  watch.end(2, 1);
  Record record;
  watch.set_columns(record);
  EXPECT_GE(record.number("page_faults_per_call"), double(kPages));
  EXPECT_LT(record.number("page_faults_per_call"), 1.5 * double(kPages));
  EXPECT_GT(record.number("system_share"), 0);
  EXPECT_GT(record.number("processor_share"), 0);
}

// A decoding state that takes in a long prompt is made between the samples, and its page faults are none of a step.
TEST(SampleWatch, LeavesOutWorkThatIsNoPartOfACall) {
  SampleWatch watch(1, 0, 0.25);
  watch.begin();
  watch.leave_out([] { touch_new_pages(); });
  keep_busy(0.002);
  watch.leave_out([] { touch_new_pages(); });
  watch.end(1, 1);
  Record record;
  watch.set_columns(record);
  EXPECT_LT(record.number("page_faults_per_call"), 0.5 * double(kPages));
}

TEST(SampleWatch, AThrottledDeviceIsADisturbance) {
  bool throttled = false;
  SampleWatch watch(1, 0, 0.25, [&] { return throttled; });
  throttled = true;
  watched_sample(watch, [] {});
  EXPECT_GE(watch.shares().at(0), 1);
}

}  // namespace
}  // namespace attnbench
