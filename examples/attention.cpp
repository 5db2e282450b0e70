// Makes two methods by their names, runs both on the same inputs, and prints the largest difference of their outputs.
#include <ATen/ATen.h>

#include <iostream>

#include "attn/registry.h"

int main() {
  // Tensors are [batch, heads, length, dim].
  const auto q = at::randn({1, 4, 256, 32}).set_requires_grad(true), k = at::randn({1, 4, 256, 32}).set_requires_grad(true),
             v = at::randn({1, 4, 256, 32}).set_requires_grad(true);
  attn::Mask mask;
  mask.causal = true;

  // Options follow the name. An unknown method or option throws c10::ValueError, which lists the known ones.
  const auto fused = attn::make_method("linear"), composed = attn::make_method("linear-chunked:chunk=64");
  const auto output = fused->forward(q, k, v, mask), expected = composed->forward(q, k, v, mask);
  const auto difference = (output - expected).abs().max().item<double>();
  std::cout << fused->label() << " ran on " << fused->implementation() << ", " << composed->label() << " on "
            << composed->implementation() << "\nlargest difference of the outputs: " << difference << '\n';

  output.sum().backward();
  std::cout << "norm of the gradient of q: " << q.grad().norm().item<double>() << '\n';
  return difference < 1e-4 ? 0 : 1;
}
