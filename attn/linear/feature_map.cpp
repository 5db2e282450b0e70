// The feature maps elu(x) + 1, those of Taylor expansions, and random features, each with its gradient.
#include "attn/linear/feature_map.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

namespace attn {
namespace {

using at::Tensor;

class EluPlusOne : public FeatureMap {
 public:
  EluPlusOne() : EluPlusOne(FeatureMapKind::elu, 1) {}

  int64_t count(int64_t dim) const override { return dim; }
  Features apply(const Tensor& x) const override { return {alpha_ == 1 ? elu_plus_one(x) : at::elu(x, alpha_).add(1), {}}; }
  // φ' is 1 where x > 0 and α·exp(x) = φ − 1 + α elsewhere.
  Tensor gradient(const Tensor& x, const Features& f, const Tensor& grad_phi) const override {
    if (alpha_ == 1) return f.phi.clamp_max(1).mul_(grad_phi);
    return f.phi.add(alpha_ - 1).masked_fill_(x > 0, 1).mul_(grad_phi);
  }
  Tensor kernel(const Tensor& q, const Tensor& k, const Tensor&) const override {
    const auto phi = [&](const Tensor& x) { return at::relu(x) + alpha_ * x.clamp_max(0).exp() + (1 - alpha_); };
    return at::matmul(phi(q), phi(k).transpose(-2, -1));
  }

 protected:
  EluPlusOne(FeatureMapKind kind, double alpha) : FeatureMap(kind), alpha_(alpha) {}

 private:
  double alpha_;
};

class Elu01PlusOne : public EluPlusOne {
 public:
  Elu01PlusOne() : EluPlusOne(FeatureMapKind::elu01, 0.1) {}
};

class Relu : public FeatureMap {
 public:
  Relu() : FeatureMap(FeatureMapKind::relu) {}

  int64_t count(int64_t dim) const override { return dim; }
  Features apply(const Tensor& x) const override { return {at::relu(x), {}}; }
  Tensor gradient(const Tensor& x, const Features&, const Tensor& grad_phi) const override {
    return grad_phi.masked_fill(x.gt(0).logical_not_(), 0);
  }
  Tensor kernel(const Tensor& q, const Tensor& k, const Tensor&) const override {
    return at::matmul(q.clamp_min(0), k.clamp_min(0).transpose(-2, -1));
  }
};

class Taylor : public FeatureMap {
 public:
  Taylor() : FeatureMap(FeatureMapKind::taylor) {}

  int64_t count(int64_t dim) const override { return dim + 1; }
  Features apply(const Tensor& x) const override {
    return {at::cat({at::ones({x.size(0), x.size(1), 1}, x.options()), x / length(x)}, 2), {}};
  }
  // The length of x̂ = x/‖x‖ is constant, so the gradient of x is the part of the gradient of x̂ that is orthogonal to x̂, divided
  // by ‖x‖.
  Tensor gradient(const Tensor& x, const Features& f, const Tensor& grad_phi) const override {
    const auto unit = f.phi.slice(2, 1), gradient = grad_phi.slice(2, 1);
    return (gradient - unit * (unit * gradient).sum(2, /*keepdim=*/true)).div_(length(x));
  }
  Tensor kernel(const Tensor& q, const Tensor& k, const Tensor&) const override {
    return at::matmul(q / length(q), (k / length(k)).transpose(-2, -1)) + 1;
  }

 private:
  static Tensor length(const Tensor& x) { return at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, true).clamp_min(1e-12); }
};

double quarter_root(int64_t dim) { return std::pow(double(dim), 0.25); }

class Polynomial2 : public FeatureMap {
 public:
  Polynomial2() : FeatureMap(FeatureMapKind::polynomial2) {}

  int64_t count(int64_t dim) const override { return dim * (dim + 1) / 2 + dim + 1; }
  Features apply(const Tensor& x) const override {
    const auto scaled = x / quarter_root(x.size(2));
    const auto pairs = at::triu_indices(x.size(2), x.size(2), 0, at::TensorOptions(at::kLong).device(x.device()));
    const auto products = scaled.index_select(2, pairs[0]) * scaled.index_select(2, pairs[1]) * weights(pairs, x);
    return {at::cat({at::ones({x.size(0), x.size(1), 1}, x.options()), scaled, products}, 2), {}};
  }
  // With x̃ = x/D^¼, the gradient h of the product x̃_a x̃_b adds h·x̃_b to the gradient of x̃_a, and h·x̃_a to that of x̃_b.
  Tensor gradient(const Tensor& x, const Features&, const Tensor& grad_phi) const override {
    const auto dim = x.size(2);
    const auto scaled = x / quarter_root(dim);
    const auto pairs = at::triu_indices(dim, dim, 0, at::TensorOptions(at::kLong).device(x.device()));
    const auto grad_pairs = grad_phi.slice(2, 1 + dim) * weights(pairs, x);
    auto gradient = grad_phi.slice(2, 1, 1 + dim).clone();
    gradient.index_add_(2, pairs[0], grad_pairs * scaled.index_select(2, pairs[1]));
    gradient.index_add_(2, pairs[1], grad_pairs * scaled.index_select(2, pairs[0]));
    return gradient.div_(quarter_root(dim));
  }
  Tensor kernel(const Tensor& q, const Tensor& k, const Tensor&) const override {
    const auto s = at::matmul(q, k.transpose(-2, -1)) / std::sqrt(double(q.size(-1)));
    return 1 + s + s * s / 2;
  }

 private:
  // The factor of each product x̃_a x̃_b: √½ for a = b, otherwise 1.
  static Tensor weights(const Tensor& pairs, const Tensor& x) {
    return at::ones({pairs.size(1)}, x.options()).masked_fill_(pairs[0] == pairs[1], std::sqrt(0.5));
  }
};

// The base class of maps with random directions ω [P,D].
class RandomFeatures : public FeatureMap {
 public:
  RandomFeatures(FeatureMapKind kind, Tensor projection) : FeatureMap(kind), projection_(std::move(projection)) {
    TORCH_CHECK_VALUE(projection_.dim() == 2 && projection_.size(0) >= 1, "projection has shape ", projection_.sizes(),
                      ", expected [directions, head_dim]");
  }

 protected:
  // P. Throws c10::ValueError if the directions do not have this dimension.
  int64_t direction_count(int64_t dim) const {
    TORCH_CHECK_VALUE(dim == projection_.size(1), "projection has shape ", projection_.sizes(), ", expected [directions, ", dim,
                      "] as head_dim is ", dim);
    return projection_.size(0);
  }
  // x̃ = x/D^¼
  Tensor scaled(const Tensor& x) const {
    direction_count(x.size(-1));
    return x / quarter_root(x.size(-1));
  }
  // ω in the dtype and on the device of x
  Tensor projection(const Tensor& x) const { return projection_.to(x.options()); }
  // ωx̃ [...,P]
  Tensor projected(const Tensor& scaled) const { return at::matmul(scaled, projection(scaled).t()); }
  double directions() const { return double(projection_.size(0)); }
  // ‖x̃‖²/2 [...,1]
  static Tensor half_square(const Tensor& scaled) { return scaled.square().sum(-1, /*keepdim=*/true) / 2; }

  Tensor projection_;
};

class Favor : public RandomFeatures {
 public:
  explicit Favor(Tensor projection) : RandomFeatures(FeatureMapKind::favor, std::move(projection)) {}
  int64_t count(int64_t dim) const override { return direction_count(dim); }
  Features apply(const Tensor& x) const override {
    const auto y = scaled(x);
    const auto exponents = projected(y) - half_square(y);
    const auto largest = exponents.amax(-1, /*keepdim=*/true);
    return {(exponents - largest).exp() / std::sqrt(directions()), largest};
  }
  Tensor gradient(const Tensor& x, const Features& f, const Tensor& grad_phi) const override {
    const auto grad_exponents = f.phi * grad_phi;
    const auto y = scaled(x);
    return (at::matmul(grad_exponents, projection(x)) - y * grad_exponents.sum(-1, /*keepdim=*/true))
        .div_(quarter_root(x.size(-1)));
  }
  Tensor kernel(const Tensor& q, const Tensor& k, const Tensor&) const override {
    const auto phi = [&](const Tensor& x) {
      const auto y = scaled(x);
      return (projected(y) - half_square(y)).exp();
    };
    return at::matmul(phi(q), phi(k).transpose(-2, -1)) / directions();
  }
};

class Trigonometric : public RandomFeatures {
 public:
  explicit Trigonometric(Tensor projection) : RandomFeatures(FeatureMapKind::rff, std::move(projection)) {}
  int64_t count(int64_t dim) const override { return 2 * direction_count(dim); }
  at::ScalarType accumulator_dtype(at::ScalarType) const override { return at::kDouble; }
  Features apply(const Tensor& x) const override {
    const auto y = scaled(x);
    const auto angles = projected(y);
    return {at::cat({angles.cos(), angles.sin()}, -1) / std::sqrt(directions()), half_square(y)};
  }
  Tensor gradient(const Tensor& x, const Features& f, const Tensor& grad_phi) const override {
    const auto y = scaled(x);
    const auto phi = f.phi.chunk(2, -1), gradient = grad_phi.chunk(2, -1);
    const auto grad_angles = phi[0] * gradient[1] - phi[1] * gradient[0];
    const auto grad_scale = (f.phi * grad_phi).sum(-1, /*keepdim=*/true);
    return (at::matmul(grad_angles, projection(x)) + y * grad_scale).div_(quarter_root(x.size(-1)));
  }
  // cos a cos b + sin a sin b = cos(a − b)
  Tensor kernel(const Tensor& q, const Tensor& k, const Tensor& hidden) const override {
    const auto a = scaled(q), b = scaled(k);
    const auto angles_a = projected(a), angles_b = projected(b);
    const auto cosines = at::matmul(angles_a.cos(), angles_b.cos().transpose(-2, -1)) +
                         at::matmul(angles_a.sin(), angles_b.sin().transpose(-2, -1));
    // A factor that all weights of a row share cancels. Rows with weights beyond e^600 are divided by one, so that none is
    // infinite.
    const auto exponents = (half_square(a) + half_square(b).transpose(-2, -1)).masked_fill(hidden, -INFINITY);
    const auto beyond = (exponents.detach().amax(-1, /*keepdim=*/true) - 600).clamp_min(0);
    return (exponents - beyond).exp() * cosines / directions();
  }
};

// Every map: its name, its kind, and how one is made. `projection` is null for maps without directions.
struct NamedFeatureMap {
  const char* name;
  FeatureMapKind kind;
  std::unique_ptr<const FeatureMap> (*make)(const Tensor* projection);
};

template <class Map>
std::unique_ptr<const FeatureMap> made(const Tensor* projection) {
  if constexpr (std::is_base_of_v<RandomFeatures, Map>) return std::make_unique<Map>(*projection);
  else return std::make_unique<Map>();
}

constexpr NamedFeatureMap kFeatureMaps[] = {
    {"elu", FeatureMapKind::elu, made<EluPlusOne>},   {"elu0.1", FeatureMapKind::elu01, made<Elu01PlusOne>},
    {"favor", FeatureMapKind::favor, made<Favor>},    {"polynomial-2", FeatureMapKind::polynomial2, made<Polynomial2>},
    {"relu", FeatureMapKind::relu, made<Relu>},       {"rff", FeatureMapKind::rff, made<Trigonometric>},
    {"taylor", FeatureMapKind::taylor, made<Taylor>},
};

// The computation of elu_plus_one(), which records no gradients.
Tensor computed_elu_plus_one(const Tensor& x) { return x.clamp_max(0).exp_().add_(at::relu(x)); }

// φ' = min(φ, 1). Recording the operations one by one would take a third longer than with at::elu() in forward and backward pass.
class EluPlusOneFunction : public torch::autograd::Function<EluPlusOneFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    auto phi = computed_elu_plus_one(x);
    context->save_for_backward({phi});
    return phi;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {context->get_saved_variables()[0].clamp_max(1).mul(gradients[0])};
  }
};

}  // namespace

Tensor elu_plus_one(const Tensor& x) {
  if (x.requires_grad() && at::GradMode::is_enabled()) return EluPlusOneFunction::apply(x);
  return computed_elu_plus_one(x);
}

const char* feature_map_name(FeatureMapKind kind) {
  for (const auto& map : kFeatureMaps)
    if (map.kind == kind) return map.name;
  TORCH_CHECK(false, "feature map ", int(kind), " has no name");
}

FeatureMapKind parse_feature_map(const std::string& name) {
  std::string known;
  for (const auto& map : kFeatureMaps) {
    if (name == map.name) return map.kind;
    known += (known.empty() ? "" : ", ") + std::string(map.name);
  }
  TORCH_CHECK_VALUE(false, "unknown feature map '", name, "'; known: ", known);
}

std::unique_ptr<const FeatureMap> make_feature_map(const FeatureMapSpec& spec) {
  const auto& [kind, projection] = spec;
  const bool random = has_directions(kind);
  TORCH_CHECK_VALUE(!random || projection, "feature map '", feature_map_name(kind),
                    "' needs a projection [directions, head_dim]");
  TORCH_CHECK_VALUE(random || !projection, "feature map '", feature_map_name(kind), "' takes no projection");
  for (const auto& map : kFeatureMaps)
    if (map.kind == kind) return map.make(projection ? &*projection : nullptr);
  return nullptr;
}

std::unique_ptr<const FeatureMap> make_feature_map(const std::string& name, const std::optional<Tensor>& projection) {
  return make_feature_map({parse_feature_map(name), projection});
}

Tensor draw_orthogonal_directions(int64_t count, int64_t dim, int64_t seed) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t(seed));
  const auto draw = [&](int64_t rows) { return at::randn({rows, dim}, generator, at::TensorOptions(at::kDouble)); };
  std::vector<Tensor> blocks;
  for (int64_t done = 0; done < count; done += dim) {
    const auto rows = std::min(dim, count - done);
    // The columns of Q are orthonormal. They are multiplied by the lengths of independent normal vectors.
    const auto directions = std::get<0>(at::linalg_qr(draw(dim))).t().narrow(0, 0, rows);
    blocks.push_back(directions * at::linalg_vector_norm(draw(rows), 2, at::IntArrayRef{1}, /*keepdim=*/true));
  }
  return at::cat(blocks);
}

}  // namespace attn
