// Tests of timing queued work without its launches, on a simulated device with a clock of its own.
#include "harness/worker/timing/queued_timing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace attnbench {
namespace {

// A device whose clock only advances as its work takes time. The host launches work, which takes the host's time, and the device
// runs it in order from the moment that it was launched or, if the queue is held, from the moment that the hold ends.
class SimulatedQueue final : public WorkQueue {
 public:
  static constexpr double kLaunchS = 1e-5, kRunS = 1e-6;

  void launch(double run_s = kRunS) {
    host_s_ += kLaunchS;
    queue(run_s);
  }
  // What a copy to the host does.
  void wait_for_device() {
    if (held_) expire();
    host_s_ = std::max(host_s_, device_s_);
  }

  void drain() override { wait_for_device(), log += "drain "; }
  void hold(double max_s) override {
    log += "hold ";
    held_ = true;
    expired_ = false;
    expires_s_ = std::max(host_s_, device_s_) + max_s;
  }
  void release() noexcept override {
    log += "release ";
    if (held_ && host_s_ > expires_s_) expire();
    if (held_) run_held(host_s_);
  }
  bool hold_expired() override { return expired_; }
  void mark_begin() override { queue(0, &begin_s_); }
  void mark_end() override { queue(0, &end_s_); }
  bool is_done() override {
    host_s_ = std::max(host_s_, device_s_);
    return ++asked_ % 3 == 0;
  }
  double seconds() override { return end_s_ - begin_s_; }

  std::string log;

 private:
  struct Queued {
    double run_s;
    double* mark;
  };
  void queue(double run_s, double* mark = nullptr) {
    if (held_ && host_s_ > expires_s_) expire();
    if (held_) return held_work_.push_back({run_s, mark});
    run({run_s, mark}, host_s_);
  }
  void run(const Queued& work, double not_before_s) {
    device_s_ = std::max(device_s_, not_before_s) + work.run_s;
    if (work.mark) *work.mark = device_s_;
  }
  void run_held(double from_s) {
    held_ = false;
    for (const auto& work : held_work_) run(work, from_s);
    held_work_.clear();
  }
  void expire() {
    expired_ = true;
    run_held(expires_s_);
  }

  double host_s_ = 0, device_s_ = 0, expires_s_ = 0, begin_s_ = 0, end_s_ = 0;
  bool held_ = false, expired_ = false;
  int asked_ = 0;
  std::vector<Queued> held_work_;
};

TEST(QueuedStopwatch, LeavesOutTheTimeOfLaunching) {
  SimulatedQueue queue;
  QueuedStopwatch stopwatch(queue);
  for (int run = 0; run < 5; ++run) {
    const auto elapsed = stopwatch.time([&] {
      for (int i = 0; i < 100; ++i) queue.launch();
    });
    EXPECT_NEAR(elapsed.s, 100 * SimulatedQueue::kRunS, 1e-9);
    EXPECT_FALSE(elapsed.includes_launches);
  }
}

TEST(QueuedStopwatch, SaysWhenWorkThatWaitsForTheDeviceIncludesLaunchesAndNoLongerHoldsTheQueue) {
  SimulatedQueue queue;
  QueuedStopwatch stopwatch(queue);
  for (int run = 0; run < 5; ++run) {
    queue.log.clear();
    const auto elapsed = stopwatch.time([&] {
      queue.launch();
      queue.wait_for_device();
      queue.launch();
    });
    EXPECT_TRUE(elapsed.includes_launches);
    EXPECT_GT(elapsed.s, SimulatedQueue::kLaunchS) << "the second launch begins when the device has done the first";
    EXPECT_LT(elapsed.s, QueuedStopwatch::kMaxHoldS) << "the hold itself is not timed";
    EXPECT_EQ(queue.log, run < QueuedStopwatch::kMaxExpired ? "drain hold release " : "drain ");
  }
}

TEST(QueuedStopwatch, HoldsTheQueueAgainAfterASingleHoldThatExpired) {
  SimulatedQueue queue;
  QueuedStopwatch stopwatch(queue);
  for (int run = 0; run < 6; ++run) {
    const bool waits = run % 2 == 0;  // such as for memory that is allocated now and then
    const auto elapsed = stopwatch.time([&] {
      queue.launch();
      if (waits) queue.wait_for_device();
      queue.launch();
    });
    EXPECT_EQ(elapsed.includes_launches, waits) << run;
  }
}

TEST(QueuedStopwatch, SaysWhenLaunchingTakesLongerThanTheHold) {
  SimulatedQueue queue;
  QueuedStopwatch stopwatch(queue);
  const auto launches = int(2 * QueuedStopwatch::kMaxHoldS / SimulatedQueue::kLaunchS);
  const auto elapsed = stopwatch.time([&] {
    for (int i = 0; i < launches; ++i) queue.launch();
  });
  EXPECT_TRUE(elapsed.includes_launches);
}

TEST(QueuedStopwatch, ReleasesTheQueueIfTheWorkThrows) {
  SimulatedQueue queue;
  QueuedStopwatch stopwatch(queue);
  EXPECT_THROW(stopwatch.time([] { throw std::runtime_error("out of memory"); }), std::runtime_error);
  EXPECT_EQ(queue.log, "drain hold release ");
}

TEST(QueuedStopwatch, ReadsTheClocksAfterTheReleaseUntilTheDeviceIsDone) {
  SimulatedQueue queue;
  QueuedStopwatch stopwatch(queue, [&] { queue.log += "read "; });
  stopwatch.time([&] { queue.launch(); });
  EXPECT_EQ(queue.log, "drain hold release read read read ");
}

TEST(TakeSamples, CountsTheSamplesThatIncludeLaunches) {
  SimulatedQueue queue;
  QueuedStopwatch stopwatch(queue);
  int call = 0;
  const auto samples = take_samples(
      {0, 6, 1e9, 0, 0}, [&](const auto& work) { return stopwatch.time(work); },
      [&] {
        queue.launch();
        if (++call == 3) queue.wait_for_device();
      },
      {});
  EXPECT_EQ(samples.ms.size(), 6u);
  EXPECT_EQ(samples.with_launches, 1);
}

}  // namespace
}  // namespace attnbench
