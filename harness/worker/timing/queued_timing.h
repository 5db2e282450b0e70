// Times work on a device that takes its work from a queue, such as a GPU with a CUDA stream, without the time that the host takes
// to launch it: the queue is held until everything is in it.
#pragma once

#include <functional>

#include "harness/worker/timing/timing.h"

namespace attnbench {

// The queue of a device. cuda/device.cpp implements it with a CUDA stream.
class WorkQueue {
 public:
  WorkQueue() = default;
  virtual ~WorkQueue() = default;
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Waits until the device is idle.
  virtual void drain() = 0;
  // Keeps the device from starting what is queued from now on, until release() is called. The hold expires by itself after
  // `max_s` seconds, so that work that waits for the device goes on.
  virtual void hold(double max_s) = 0;
  virtual void release() noexcept = 0;
  // Whether the last hold expired before it was released. May only be called when is_done().
  virtual bool hold_expired() = 0;
  // Queue the marks between which time is measured. What they need is made beforehand, and used again and again.
  virtual void mark_begin() = 0;
  virtual void mark_end() = 0;
  // Whether the device has passed the end mark. Throws if the device has failed.
  virtual bool is_done() = 0;
  // The seconds between the marks by the device's clock. May only be called when is_done().
  virtual double seconds() = 0;
};

// Measures work that is repeated. Each run is queued as a whole before the device begins with it, unless the hold expires. It
// expires if the work waits for the device itself (it copies to the host, or checks values there), launches more than fits into
// the queue, or takes longer to launch than kMaxHoldS. The time of such a run includes launches, which the result says. After
// kMaxExpired such runs in direct succession the queue is no longer held, because every hold that expires costs kMaxHoldS.
class QueuedStopwatch {
 public:
  static constexpr double kMaxHoldS = 0.1;
  static constexpr int kMaxExpired = 2;

  // `while_running` is called again and again while the device works, for instance to read its clocks. It may be empty. The queue
  // must outlive the stopwatch.
  explicit QueuedStopwatch(WorkQueue& queue, std::function<void()> while_running = {});
  // Runs `work` and returns how long it took. `wall_s` covers launching and running, which do not overlap while the queue is
  // held. If `work` throws, the queue is released.
  Elapsed time(const std::function<void()>& work);

 private:
  WorkQueue& queue_;
  std::function<void()> while_running_;
  int expired_ = 0;  // the number of holds that have expired since one did not
};

}  // namespace attnbench
