// Feature maps φ of linear attention, elementwise, with their derivative in closed form.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace attn {

struct FeatureMap {
  std::string name;
  at::Tensor (*apply)(const at::Tensor& x);
  // Gradient of the loss with respect to x, from x, phi = apply(x) and the gradient with respect to phi.
  at::Tensor (*gradient)(const at::Tensor& x, const at::Tensor& phi, const at::Tensor& phi_gradient);
};

// Throws c10::ValueError that lists the known names: "elu" is elu(x) + 1, of "Transformers are RNNs", equation 7.
const FeatureMap& find_feature_map(const std::string& name);

}  // namespace attn
