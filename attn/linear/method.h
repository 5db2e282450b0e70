// LinearMethod, the base class of the attention methods that differ in their feature maps: linear, linear-elu0.1, taylor,
// polynomial-2, favor and rff.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attn/linear/feature_map.h"
#include "attn/linear/implementation.h"
#include "attn/method.h"
#include "attn/options.h"

namespace attn {

// ε of every method of linear attention.
constexpr double kLinearEpsilon = 1e-6;

inline const OptionSpec kLinearImplementation =
    implementation_option({"amx", "avx512", "avx2", "neon", "portable", "cuda", "cuda-tf32", "cuda-plain"});

// The option of methods that have kernels, too.
inline OptionSpec composed_chunk_option(int64_t chunk) {
  return {"composed_chunk", chunk, "positions in a chunk of the causal form that implementation=composed computes", {}, 1};
}

class LinearMethod : public AttentionMethod {
 public:
  // `feature_map` is a name that parse_feature_map() knows, `composed_chunk` the number of positions in a chunk of the composed
  // causal form, and `implementation` a value of kLinearImplementation.
  LinearMethod(const std::string& feature_map, int64_t composed_chunk, std::string implementation = kComposedImplementation);

  Capabilities capabilities() const override;
  bool takes_float16(c10::DeviceType device) const override { return implementations_.takes_float16(device); }
  double error_tolerance(at::ScalarType dtype) const override;
  std::optional<std::string> why_unsupported(const Problem& problem, Protocol protocol) const override;
  Cost cost(const Problem& problem, Protocol protocol) const override;
  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override;
  double state_bytes(const Problem& problem, int64_t position) const override;

 protected:
  // The random directions for D = head_dim, float64 [P,D]; nothing for maps without directions.
  virtual std::optional<at::Tensor> projection(int64_t head_dim) const { return (void)head_dim, std::nullopt; }
  FeatureMapSpec spec_for(int64_t head_dim) const { return {feature_map_, projection(head_dim)}; }
  std::unique_ptr<const FeatureMap> map_for(int64_t head_dim) const { return make_feature_map(spec_for(head_dim)); }
  // How many random directions there are; 0 for maps without directions.
  virtual int64_t direction_count() const { return 0; }

  at::Tensor attend(const Inputs& inputs) override;
  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override;
  void absorb(DecodingState& state, const Inputs& tokens) override;
  at::Tensor decode(DecodingState& state, const Inputs& token) override;
  std::unique_ptr<BoundStep> make_bound_step(DecodingState& state, const Inputs& token, const at::Tensor& output,
                                             int64_t workers) const override;

 private:
  // Like map_for(), but with directions that have no values. Predictions need only their shape, and drawing them can take hours.
  std::unique_ptr<const FeatureMap> map_for_prediction(int64_t head_dim) const;
  Cost decode_cost(const Problem& problem) const;
  Cost composed_cost(const Problem& problem, bool backward) const;
  Cost kernel_cost(const Problem& problem, bool backward, const LinearImplementation& implementation) const;
  double composed_chunk_numbers(const Problem& problem, bool backward, double chunk, double features) const;

  LinearRequest request_for(const Problem& p, bool gradients) const {
    return {{wanted_, p.dtype, p.device, p.head_dim, p.value_dim, gradients}, feature_map_};
  }
  // Null if the problem is computed by composed ATen operations. `gradients` is as in ImplementationRequest.
  const LinearImplementation* implementation_for(const Problem& problem, bool gradients) const {
    return implementations_.find(request_for(problem, gradients));
  }

  FeatureMapKind feature_map_;
  int64_t composed_chunk_;
  std::string wanted_;
  ImplementationResolver<LinearRegistry> implementations_{linear_implementations()};
};

// The base class of methods whose feature maps have random directions: `count` directions, drawn from a seed once for each
// head_dim.
class RandomFeatureMethod : public LinearMethod {
 public:
  RandomFeatureMethod(const std::string& feature_map, int64_t composed_chunk, int64_t count, int64_t seed,
                      std::string implementation = kComposedImplementation)
      : LinearMethod(feature_map, composed_chunk, std::move(implementation)), count_(count), seed_(seed) {}

 protected:
  std::optional<at::Tensor> projection(int64_t head_dim) const override;
  int64_t direction_count() const override { return count_; }

 private:
  int64_t count_, seed_;
  mutable std::map<int64_t, at::Tensor> drawn_;
};

}  // namespace attn
