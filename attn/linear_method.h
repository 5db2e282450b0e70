// The method behind every feature map: linear, linear-elu0.1, taylor, polynomial-2, favor, rff.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attn/feature_map.h"
#include "attn/linear_attention.h"
#include "attn/method.h"

namespace attn {

// ε of every kernelised method.
constexpr double kLinearEpsilon = 1e-6;

class LinearMethod : public AttentionMethod {
 public:
  // `chunk`: positions a chunk of the causal form.
  LinearMethod(std::string feature_map, int64_t chunk) : feature_map_(std::move(feature_map)), chunk_(chunk) {}

  Capabilities capabilities() const override;
  Cost cost(const Problem& problem, Protocol protocol) const override;
  at::Tensor reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                       const at::Tensor& rows) const override;
  double state_bytes(const Problem& problem, int64_t position) const override;

 protected:
  // Random directions for heads of this size, float64 [P,D]; nothing for maps without.
  virtual std::optional<at::Tensor> projection(int64_t head_dim) const { return (void)head_dim, std::nullopt; }
  std::unique_ptr<const FeatureMap> map_for(int64_t head_dim) const {
    return make_feature_map(feature_map_, projection(head_dim));
  }

  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask) override;
  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override;
  void absorb(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override;
  at::Tensor decode(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override;

 private:
  std::string feature_map_;
  int64_t chunk_;
};

// Those whose directions are drawn once from a seed, `count` of them.
class RandomFeatureMethod : public LinearMethod {
 public:
  RandomFeatureMethod(std::string feature_map, int64_t chunk, int64_t count, int64_t seed)
      : LinearMethod(std::move(feature_map), chunk), count_(count), seed_(seed) {}

  std::optional<at::Tensor> approximated(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                                         const at::Tensor& rows) const override;

 protected:
  std::optional<at::Tensor> projection(int64_t head_dim) const override;

 private:
  int64_t count_, seed_;
  mutable std::map<int64_t, at::Tensor> drawn_;
};

}  // namespace attn
