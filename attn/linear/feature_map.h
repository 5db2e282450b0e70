// Feature maps φ of linear attention, with their gradients in closed form. Nothing here keeps features for a whole sequence:
// they are computed for a stretch of it at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attn {

// φ(x) = phi · exp(log_scale). Maps that exponentiate keep their largest exponent apart, so that nothing overflows.
struct Features {
  at::Tensor phi;        // [R,T,F]
  at::Tensor log_scale;  // [R,T,1]; undefined when it is zero everywhere
};

// x is [R,T,D], R being batches times heads; float32 or float64. Differentiable.
class FeatureMap {
 public:
  virtual ~FeatureMap() = default;

  virtual int64_t count(int64_t dim) const = 0;  // F
  virtual Features apply(const at::Tensor& x) const = 0;
  // Gradient with respect to x of a loss whose gradient with respect to φ(x) is phi_gradient · exp(-log_scale).
  virtual at::Tensor gradient(const at::Tensor& x, const Features& features, const at::Tensor& phi_gradient) const = 0;
  // φ(q)·φ(k) for every pair by its own definition, without the features where there is a closed form: [...,N,L]. For the
  // reference.
  virtual at::Tensor kernel(const at::Tensor& q, const at::Tensor& k) const = 0;
  virtual bool scales() const { return false; }  // whether log_scale is defined
  // The type of features and sums for inputs of this type: float32 at least.
  virtual at::ScalarType sum_dtype(at::ScalarType input) const { return input == at::kDouble ? at::kDouble : at::kFloat; }
};

// By name; `projection` [P,D] holds the random directions ω of the maps that have some, in their sums' type.
//   elu           elu(x) + 1                              ("Transformers are RNNs", equation 7)
//   elu0.1        elu(x; α = 0.1) + 1
//   relu          max(x, 0); a query or key without a positive entry has no weight
//   taylor        [1, x/‖x‖], so that the kernel is 1 + q̂·k̂
//   polynomial-2  [1, x̃, x̃_a x̃_b (a < b), x̃_a²/√2] with x̃ = x/D^¼, so that the kernel is 1 + s + s²/2, s = q·k/√D
//   favor         exp(ωx̃ − ‖x̃‖²/2)/√P                    (FAVOR+, 2009.14794, equation 5), P features
//   rff           exp(‖x̃‖²/2) [cos ωx̃, sin ωx̃]/√P       (Rahimi & Recht 2007), 2·P features; always float64, as its
//                 weights have both signs and their sum may cancel to almost nothing
// Throws c10::ValueError for an unknown name (listing the known), and for a projection that is missing or not wanted.
std::unique_ptr<const FeatureMap> make_feature_map(const std::string& name, const std::optional<at::Tensor>& projection = {});

// Directions for favor and rff: [count, dim] float64 standard normal rows from the seed, orthogonal within blocks of `dim`.
at::Tensor draw_orthogonal_directions(int64_t count, int64_t dim, int64_t seed);

}  // namespace attn
