// Holds a queue while work is launched into it, and reads its clock around the work.
#include "harness/worker/timing/queued_timing.h"

#include <utility>

namespace attnbench {
namespace {

// Releases a queue at the latest when it goes out of scope, also if the work throws.
class Hold {
 public:
  Hold(WorkQueue& queue, double max_s) : queue_(&queue) { queue.hold(max_s); }
  ~Hold() { release(); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  void release() {
    if (auto* const queue = std::exchange(queue_, nullptr)) queue->release();
  }

 private:
  WorkQueue* queue_;
};

}  // namespace

QueuedStopwatch::QueuedStopwatch(WorkQueue& queue, std::function<void()> while_running)
    : queue_(queue), while_running_(std::move(while_running)) {}

Elapsed QueuedStopwatch::time(const std::function<void()>& work) {
  queue_.drain();
  const bool holds = expired_ < kMaxExpired;
  const auto host = time_on_host([&] {
    const auto launch = [&] {
      queue_.mark_begin();
      work();
      queue_.mark_end();
    };
    if (holds) {
      Hold hold(queue_, kMaxHoldS);
      launch();
      hold.release();
    } else {
      launch();
    }
    // The clocks are read before the device is first asked whether it is done, so that even a short run has a reading.
    do {
      if (while_running_) while_running_();
    } while (!queue_.is_done());
  });
  const bool includes_launches = !holds || queue_.hold_expired();
  if (holds) expired_ = includes_launches ? expired_ + 1 : 0;
  return {queue_.seconds(), host.wall_s, includes_launches};
}

}  // namespace attnbench
