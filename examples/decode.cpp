// Decodes token by token with linear attention, whose state has the same size at every position, and compares the outputs with
// the rows of the causal forward.
#include <ATen/ATen.h>

#include <algorithm>
#include <iostream>

#include "attn/registry.h"

int main() {
  attn::Problem problem;
  problem.heads = 2;
  problem.head_dim = problem.value_dim = 16;
  problem.query_len = problem.key_len = 64;  // the most tokens that may come
  problem.causal = true;

  const auto q = at::randn({1, 2, 64, 16}), k = at::randn({1, 2, 64, 16}), v = at::randn({1, 2, 64, 16});
  const auto method = attn::make_method("linear");
  attn::Mask mask;
  mask.causal = true;
  const auto expected = method->forward(q, k, v, mask);

  const auto state = method->begin_decoding(problem);
  double largest = 0;
  for (int64_t i = 0; i < problem.query_len; ++i) {
    const auto token = attn::Inputs{q, k, v}.tokens(i, 1);
    const auto output = method->step(*state, token);  // [1, 2, 1, 16]
    largest = std::max(largest, (output - expected.narrow(2, i, 1)).abs().max().item<double>());
  }
  std::cout << "largest difference from the causal forward: " << largest << "\nbytes of the state: " << state->bytes() << '\n';
  return largest < 1e-4 ? 0 : 1;
}
