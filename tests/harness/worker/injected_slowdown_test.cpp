// Tests of the slowdown that tests of comparisons inject into a case.
#include "harness/worker/injected_slowdown.h"

#include <gtest/gtest.h>

#include <chrono>

#include "harness/worker/timing.h"

namespace attnbench {
namespace {

TEST(InjectedSlowdown, LengthensACallByItsPercentage) {
  int calls = 0;
  double call_s = 0;
  const auto call = [&] {
    ++calls;
    call_s = time_on_host([] {
               const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
               while (std::chrono::steady_clock::now() < end) {
               }
             }).s;
  };
  EXPECT_GE(time_on_host(slowed_down(call, 150)).s, 2.5 * call_s);
  EXPECT_EQ(calls, 1);
  slowed_down(call, 0)();
  EXPECT_EQ(calls, 2);
}

TEST(InjectedSlowdown, AddsItsPercentageToANumberOfCalls) {
  EXPECT_EQ(slowed_down_count(100, 0), 100);
  EXPECT_EQ(slowed_down_count(100, 25), 125);
  EXPECT_EQ(slowed_down_count(100, 0.4), 100);
}

}  // namespace
}  // namespace attnbench
