// gradients_of_composition(), the backward pass of operators where they are composed of ATen operations.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

namespace attn {

// Computes the results again with autograd, and returns the gradient of each input, which is zeros where no result depends on it.
// `forward` returns the results as a vector. It reads `inputs`, which are replaced by leaves of the graph. A gradient of a result
// may be undefined, which stands for zeros. An operator's backward pass is below autograd in the dispatcher, where nothing is
// recorded, so that the keys of autograd are let in again.
template <class Forward>
std::vector<at::Tensor> gradients_of_composition(const std::vector<at::Tensor*>& inputs, const Forward& forward,
                                                 const std::vector<at::Tensor>& grad_results) {
  const auto dispatch = c10::impl::tls_local_dispatch_key_set();
  const c10::impl::ForceDispatchKeyGuard above_autograd(dispatch.included_,
                                                        dispatch.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  const at::AutoGradMode enabled(true);
  std::vector<at::Tensor> leaves, outputs, gradients;
  for (auto* input : inputs) {
    *input = input->detach().requires_grad_(true);
    leaves.push_back(*input);
  }
  const auto results = forward();
  for (size_t i = 0; i < results.size(); ++i)
    if (grad_results[i].defined() && results[i].requires_grad())
      outputs.push_back(results[i]), gradients.push_back(grad_results[i]);
  auto found = outputs.empty()
                   ? std::vector<at::Tensor>(leaves.size())
                   : torch::autograd::grad(outputs, leaves, gradients, /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                                           /*allow_unused=*/true);
  for (size_t i = 0; i < found.size(); ++i)
    if (!found[i].defined()) found[i] = at::zeros_like(leaves[i]);
  return found;
}

}  // namespace attn
