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
  problem.query_len = problem.key_len = 64;  // the number of tokens that fit the state
  problem.causal = true;

  const auto q = at::randn({1, 2, 64, 16}), k = at::randn({1, 2, 64, 16}), v = at::randn({1, 2, 64, 16});
  const attn::Inputs inputs{q, k, v, {.causal = true}};  // decoding is causal
  const auto method = attn::make_method("linear");
  const auto expected = method->forward(inputs);

  const auto state = method->begin_decoding(problem);
  double max_difference = 0;
  for (int64_t i = 0; i < problem.query_len; ++i) {
    const auto output = method->step(*state, inputs.tokens(i, 1));  // [1, 2, 1, 16]
    max_difference = std::max(max_difference, (output - expected.narrow(2, i, 1)).abs().max().item<double>());
  }
  std::cout << "largest difference from the causal forward: " << max_difference << "\nbytes of the state: " << state->bytes()
            << '\n';
  return max_difference < 1e-4 ? 0 : 1;
}
