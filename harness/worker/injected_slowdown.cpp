#include "harness/worker/injected_slowdown.h"

#include <chrono>
#include <cmath>
#include <utility>

namespace attnbench {

std::function<void()> slowed_down(std::function<void()> call, double percent) {
  if (percent == 0) return call;
  return [call = std::move(call), percent] {
    const auto begin = std::chrono::steady_clock::now();
    call();
    const auto end = std::chrono::steady_clock::now() + (std::chrono::steady_clock::now() - begin) * (percent / 100);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
}

int64_t slowed_down_count(int64_t calls, double percent) { return int64_t(std::lround(double(calls) * (1 + percent / 100))); }

}  // namespace attnbench
