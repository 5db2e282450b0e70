// The feature maps φ of linear attention with their gradients in closed form, composed of ATen operations. Features are never
// held for a whole sequence: callers compute them for one part of it at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string>

#include "attn/linear/feature_map_kind.h"

namespace attn {

// φ(x) = phi · exp(log_scale).
struct Features {
  at::Tensor phi;        // [R,T,F]
  at::Tensor log_scale;  // [R,T,1]; undefined for maps without scales
};

// x is [R,T,D], R being batches times heads; float32 or float64. Differentiable.
class FeatureMap {
 public:
  explicit FeatureMap(FeatureMapKind kind) : kind_(kind) {}
  virtual ~FeatureMap() = default;

  bool scales() const { return has_scales(kind_); }  // whether log_scale is defined
  virtual int64_t count(int64_t dim) const = 0;      // F for vectors of this dimension
  virtual Features apply(const at::Tensor& x) const = 0;
  // The gradient with respect to x of a loss whose gradient with respect to φ(x) is grad_phi · exp(-log_scale).
  virtual at::Tensor gradient(const at::Tensor& x, const Features& features, const at::Tensor& grad_phi) const = 0;
  // φ(q)·φ(k) for every pair [...,N,L] by its own definition, without features where there is a closed form. For the reference.
  virtual at::Tensor kernel(const at::Tensor& q, const at::Tensor& k) const = 0;
  // The dtype of features and sums for inputs of this dtype: float32 at least.
  virtual at::ScalarType accumulator_dtype(at::ScalarType input) const { return input == at::kDouble ? at::kDouble : at::kFloat; }

 private:
  FeatureMapKind kind_;
};

// The name of a map in options and operators, such as "elu0.1" or "polynomial-2", and back. Throws c10::ValueError for an unknown
// name, listing the known ones.
const char* feature_map_name(FeatureMapKind kind);
FeatureMapKind parse_feature_map(const std::string& name);

// Which map, and its random directions [P,D] for maps that have some.
struct FeatureMapSpec {
  FeatureMapKind kind;
  std::optional<at::Tensor> projection = std::nullopt;
};

// Throws c10::ValueError for a projection that is missing, not wanted, or of another shape than [P,D].
std::unique_ptr<const FeatureMap> make_feature_map(const FeatureMapSpec& spec);
// The same by name.
std::unique_ptr<const FeatureMap> make_feature_map(const std::string& name, const std::optional<at::Tensor>& projection = {});

// Directions for favor and rff: [count, dim] float64 standard normal rows drawn from the seed, orthogonal within blocks of `dim`
// rows.
at::Tensor draw_orthogonal_directions(int64_t count, int64_t dim, int64_t seed);

}  // namespace attn
