// Compares linear attention with its definition, and prints the largest difference.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tril.h>

#include <cstdio>

#include "attn/linear/linear_attention.h"

int main() {
  at::manual_seed(1);
  const auto q = at::randn({1, 2, 20, 4}), k = at::randn({1, 2, 20, 4}), v = at::randn({1, 2, 20, 3});
  const auto output = attn::linear_attention(q, k, v, {.causal = true});
  const auto weights = at::tril(at::matmul(at::elu(q) + 1, (at::elu(k) + 1).transpose(2, 3)));
  const auto expected = at::matmul(weights, v) / (weights.sum(-1, /*keepdim=*/true) + 1e-6);
  std::printf("%.1e\n", (output - expected).abs().max().item<double>());
}
