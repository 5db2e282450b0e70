// The feature maps φ of linear attention and their gradients in closed form, composed of ATen operations. Features are not stored
// for a whole sequence: callers compute them for one chunk at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string>

#include "attn/implementations.h"
#include "attn/linear/feature_map_kind.h"
#include "attn/linear/update.h"

namespace attn {

// φ(x) = phi · exp(log_scale).
struct Features {
  at::Tensor phi;        // [R,T,F]
  at::Tensor log_scale;  // [R,T,1]; undefined for maps that do not exponentiate
};

// A feature map of rows x [R,T,D], float32 or float64, where R = batch · heads. apply() and kernel() are differentiable.
class FeatureMap {
 public:
  explicit FeatureMap(FeatureMapKind kind) : kind_(kind) {}
  virtual ~FeatureMap() = default;

  LinearUpdate update() const { return update_for(kind_); }
  bool exponentiates() const { return attn::exponentiates(kind_); }  // whether log_scale is defined
  virtual int64_t count(int64_t dim) const = 0;                      // F, the number of features, for D = dim
  virtual Features apply(const at::Tensor& x) const = 0;
  // The gradient with respect to x of a loss whose gradient with respect to φ(x) is grad_phi · exp(-log_scale).
  virtual at::Tensor gradient(const at::Tensor& x, const Features& features, const at::Tensor& grad_phi) const = 0;
  // φ(q)·φ(k) for every pair, [...,N,L], from q [...,N,D] and k [...,L,D], by the map's definition: a closed form without
  // features where there is one. The float64 reference uses it. Pairs that are `hidden` [...,N,L] have any weight, and all
  // weights of a row may be divided by a number where they would overflow.
  virtual at::Tensor kernel(const at::Tensor& q, const at::Tensor& k, const at::Tensor& hidden) const = 0;
  // The dtype of features and states for inputs of this dtype: float64 for float64, otherwise float32 (rff: always float64).
  virtual at::ScalarType accumulator_dtype(at::ScalarType input) const { return attn::accumulator_dtype(input); }

 private:
  FeatureMapKind kind_;
};

// Convert between a map and its name in options and operators, such as "elu0.1" or "polynomial-2". parse_feature_map() throws
// c10::ValueError for an unknown name; the message lists the known ones.
const char* feature_map_name(FeatureMapKind kind);
FeatureMapKind parse_feature_map(const std::string& name);

// A feature map and, for maps that need them, its random directions [P,D].
struct FeatureMapSpec {
  FeatureMapKind kind;
  std::optional<at::Tensor> projection = std::nullopt;
};

// Makes a feature map. Throws c10::ValueError if the map needs a projection and there is none, if it takes none and there is one,
// and if the projection is not a matrix.
std::unique_ptr<const FeatureMap> make_feature_map(const FeatureMapSpec& spec);
// The same by name.
std::unique_ptr<const FeatureMap> make_feature_map(const std::string& name, const std::optional<at::Tensor>& projection = {});

// elu(x) + 1 = max(x, 0) + exp(min(x, 0)), without the cancellation of adding 1 to a number near −1.
at::Tensor elu_plus_one(const at::Tensor& x);

// Draws directions for favor and rff from the seed: float64 [count, dim], whose rows are standard normal vectors, orthogonal
// within blocks of `dim` rows.
at::Tensor draw_orthogonal_directions(int64_t count, int64_t dim, int64_t seed);

}  // namespace attn
