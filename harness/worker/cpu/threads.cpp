#include "harness/worker/cpu/threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <future>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace attnbench {

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
