// The gradients of a call.
#include "harness/worker/call.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

namespace attnbench {

attn::Inputs gradients_of(const at::Tensor& output, const at::Tensor& grad_output, const attn::Inputs& inputs,
                          const std::vector<attn::InputSpec>& specs) {
  std::vector<at::Tensor> leaves;
  std::vector<at::Tensor attn::Inputs::*> members;
  for (const auto& spec : specs) {
    if (!spec.differentiable || !(inputs.*spec.member).defined()) continue;
    leaves.push_back(inputs.*spec.member);
    members.push_back(spec.member);
  }
  const auto found = torch::autograd::grad({output}, leaves, {grad_output}, /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                                           /*allow_unused=*/true);
  attn::Inputs gradients;
  for (size_t i = 0; i < found.size(); ++i) gradients.*members[i] = found[i].defined() ? found[i] : at::zeros_like(leaves[i]);
  return gradients;
}

}  // namespace attnbench
