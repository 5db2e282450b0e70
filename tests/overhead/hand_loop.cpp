// Times sdpa by hand, without the harness: each call in a loop is timed by two clock reads. Prints the median time of a call in
// milliseconds, which compare.py compares with the median that the harness records.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: hand_loop LENGTH CALLS THREADS\n");
    return 2;
  }
  const int64_t length = std::atol(argv[1]), calls = std::atol(argv[2]);
  at::set_num_threads(std::atoi(argv[3]));
  const at::NoGradGuard no_grad;
  const auto q = at::randn({1, 8, length, 64}), k = at::randn({1, 8, length, 64}), v = at::randn({1, 8, length, 64});
  std::vector<double> ms;
  for (int64_t i = -3; i < calls; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto out = at::scaled_dot_product_attention(q, k, v);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (i >= 0) ms.push_back(took.count());
  }
  std::nth_element(ms.begin(), ms.begin() + long(ms.size() / 2), ms.end());
  std::printf("%.6f\n", ms[ms.size() / 2]);
  return 0;
}
