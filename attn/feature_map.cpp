#include "attn/feature_map.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace attn {
namespace {

at::Tensor elu_plus_one(const at::Tensor& x) { return at::elu(x).add(1); }

// φ' is 1 where x > 0 and exp(x) = φ elsewhere, which is min(φ, 1).
at::Tensor elu_plus_one_gradient(const at::Tensor&, const at::Tensor& phi, const at::Tensor& phi_gradient) {
  return phi.clamp_max(1).mul_(phi_gradient);
}

const FeatureMap kElu{"elu", elu_plus_one, elu_plus_one_gradient};

}  // namespace

const FeatureMap& find_feature_map(const std::string& name) {
  TORCH_CHECK_VALUE(name == kElu.name, "unknown feature map '", name, "'; known: ", kElu.name);
  return kElu;
}

}  // namespace attn
