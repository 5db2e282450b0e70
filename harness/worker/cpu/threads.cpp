// Binds PyTorch's threads to processors, and releases them.
#include "harness/worker/cpu/threads.h"

#include <ATen/Parallel.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "harness/machine/machine.h"

namespace attnbench {
namespace {

// Calls work(thread) on each of PyTorch's threads.
void on_each_thread(int64_t count, const std::function<void(int64_t)>& work) {
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) work(thread);
  });
}

}  // namespace

bool run_on(const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors)
    if (processor < CPU_SETSIZE) CPU_SET(processor, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

BoundThreads::BoundThreads(int64_t count) : processors_(available_processor_numbers()) {
  if (count < 2 || count > int64_t(processors_.size())) return;
  count_ = count;
  std::atomic<bool> all_bound = true;
  on_each_thread(count_, [&](int64_t thread) {
    if (!run_on({processors_[size_t(thread)]})) all_bound = false;
  });
  if (all_bound) return;
  on_each_thread(count_, [&](int64_t) { run_on(processors_); });
  count_ = 0;
}

BoundThreads::~BoundThreads() {
  if (count_ > 0) on_each_thread(count_, [&](int64_t) { run_on(processors_); });
}

void use_threads(int64_t count) {
  // PyTorch also starts a thread for each processor, whatever the count is.
  const auto needed = std::max<int64_t>(count, std::thread::hardware_concurrency());
  std::promise<void> all_started;
  const auto end = all_started.get_future().share();
  std::vector<std::thread> threads;
  std::string failure;
  try {
    while (int64_t(threads.size()) + 1 < needed) threads.emplace_back([end] { end.wait(); });
  } catch (const std::system_error& error) {
    failure = "cannot start thread " + std::to_string(threads.size() + 2) + " of " + std::to_string(needed) + ": " +
              error.code().message();
  }
  all_started.set_value();
  for (auto& thread : threads) thread.join();
  if (!failure.empty()) throw std::runtime_error(failure);
  at::set_num_threads(int(count));
}

}  // namespace attnbench
