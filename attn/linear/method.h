// The method behind every feature map: linear, linear-elu0.1, taylor, polynomial-2, favor, rff.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attn/linear/feature_map.h"
#include "attn/linear/implementation.h"
#include "attn/linear/linear_attention.h"
#include "attn/method.h"
#include "attn/options.h"

namespace attn {

// ε of every kernelised method.
constexpr double kLinearEpsilon = 1e-6;

inline const OptionSpec kKernelOption{
    "kernel",
    std::string("auto"),
    "what computes: the CPU's instruction set, or on CUDA; auto: the best there is; composed: of "
    "ATen operations",
    {"auto", "avx512", "avx2", "portable", "cuda", "cuda-tf32", "cuda-plain", "composed"}};

class LinearMethod : public AttentionMethod {
 public:
  // `chunk`: positions a chunk of the composed causal form; `kernel`: as in LinearAttentionOptions.
  LinearMethod(std::string feature_map, int64_t chunk, std::string kernel = "composed");

  Capabilities capabilities() const override;
  double error_tolerance(at::ScalarType dtype) const override;
  std::optional<std::string> why_unsupported(const Problem& problem, Protocol protocol) const override;
  Cost cost(const Problem& problem, Protocol protocol) const override;
  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override;
  double state_bytes(const Problem& problem, int64_t position) const override;

 protected:
  // Random directions for heads of this size, float64 [P,D]; nothing for maps without.
  virtual std::optional<at::Tensor> projection(int64_t head_dim) const { return (void)head_dim, std::nullopt; }
  std::unique_ptr<const FeatureMap> map_for(int64_t head_dim) const {
    return make_feature_map(feature_map_, projection(head_dim));
  }

  at::Tensor attend(const Inputs& inputs) override;
  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override;
  void absorb(DecodingState& state, const Inputs& tokens) override;
  at::Tensor decode(DecodingState& state, const Inputs& token) override;

 private:
  Cost kernel_cost(const Problem& problem, Protocol protocol) const;
  // Null when this is composed of ATen operations.
  const kernels::LinearImplementation* implementation_for(const Problem& p) const {
    return kernels::find_linear({kernel_, feature_map_, p.dtype, p.device, p.head_dim, p.value_dim});
  }
  const kernels::LinearImplementation* implementation_for(const at::Tensor& k, const at::Tensor& v) const {
    return kernels::find_linear({kernel_, feature_map_, k.scalar_type(), k.device().type(), k.size(3), v.size(3)});
  }

  std::string feature_map_;
  int64_t chunk_;
  std::string kernel_;
};

// Those whose directions are drawn once from a seed, `count` of them.
class RandomFeatureMethod : public LinearMethod {
 public:
  RandomFeatureMethod(std::string feature_map, int64_t chunk, int64_t count, int64_t seed, std::string kernel = "composed")
      : LinearMethod(std::move(feature_map), chunk, std::move(kernel)), count_(count), seed_(seed) {}

  std::optional<at::Tensor> approximated(const Inputs& inputs, const at::Tensor& rows) const override;

 protected:
  std::optional<at::Tensor> projection(int64_t head_dim) const override;

 private:
  int64_t count_, seed_;
  mutable std::map<int64_t, at::Tensor> drawn_;
};

}  // namespace attn
