// The portable kernels of linear attention. They process one position after the other and accumulate in float64 for float64
// tensors and in float32 for others. "auto" chooses them where there are no vector kernels.
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "attn/cpu/kernel_table.h"
#include "attn/linear/cpu/feature_map_list.h"
#include "attn/linear/cpu/kernels.h"

namespace attn::cpu {
namespace {

template <class T>
T length_of(const std::vector<T>& x) {
  T squares = 0;
  for (const T entry : x) squares += entry * entry;
  return std::isnan(squares) ? squares : std::max(std::sqrt(squares), T(1e-12));
}

template <class T>
T dot(const std::vector<T>& a, const T* b) {
  T sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The features of a row, and their scale, which is 0 for maps without scales.
template <class T>
struct RowFeatures {
  std::vector<T> phi;
  T scale = 0;
};

// Each feature map has the functions features(), the features of a row x, and gradient(), the gradient of x from that of its
// features.
struct PortableElu {
  static constexpr auto kKind = FeatureMapKind::elu;
  template <class T>
  static RowFeatures<T> features(const LinearHeadParams&, std::vector<T> x) {
    for (auto& entry : x) entry = entry > 0 ? entry + 1 : std::exp(entry);
    return {std::move(x)};
  }
  template <class T>
  static std::vector<T> gradient(const LinearHeadParams&, const std::vector<T>& x, std::vector<T> grad_phi) {
    for (size_t d = 0; d < x.size(); ++d) grad_phi[d] *= x[d] > 0 ? T(1) : std::exp(x[d]);
    return grad_phi;
  }
};

struct PortableElu01 {
  static constexpr auto kKind = FeatureMapKind::elu01;
  template <class T>
  static RowFeatures<T> features(const LinearHeadParams&, std::vector<T> x) {
    for (auto& entry : x) entry = entry > 0 ? entry + 1 : T(0.1) * std::exp(entry) + T(0.9);
    return {std::move(x)};
  }
  template <class T>
  static std::vector<T> gradient(const LinearHeadParams&, const std::vector<T>& x, std::vector<T> grad_phi) {
    for (size_t d = 0; d < x.size(); ++d) grad_phi[d] *= x[d] > 0 ? T(1) : T(0.1) * std::exp(x[d]);
    return grad_phi;
  }
};

struct PortableRelu {
  static constexpr auto kKind = FeatureMapKind::relu;
  template <class T>
  static RowFeatures<T> features(const LinearHeadParams&, std::vector<T> x) {
    for (auto& entry : x) entry = entry > 0 || std::isnan(entry) ? entry : T(0);
    return {std::move(x)};
  }
  template <class T>
  static std::vector<T> gradient(const LinearHeadParams&, const std::vector<T>& x, std::vector<T> grad_phi) {
    for (size_t d = 0; d < x.size(); ++d) grad_phi[d] = x[d] > 0 ? grad_phi[d] : T(0);
    return grad_phi;
  }
};

struct PortableTaylor {
  static constexpr auto kKind = FeatureMapKind::taylor;
  template <class T>
  static RowFeatures<T> features(const LinearHeadParams&, std::vector<T> x) {
    const T length = length_of(x);
    for (auto& entry : x) entry /= length;
    x.insert(x.begin(), T(1));
    return {std::move(x)};
  }
  template <class T>
  static std::vector<T> gradient(const LinearHeadParams&, const std::vector<T>& x, const std::vector<T>& grad_phi) {
    const T length = length_of(x);
    T along = 0;
    for (size_t d = 0; d < x.size(); ++d) along += x[d] / length * grad_phi[1 + d];
    std::vector<T> gradient(grad_phi.begin() + 1, grad_phi.end());
    for (size_t d = 0; d < x.size(); ++d) gradient[d] = (gradient[d] - x[d] / length * along) / length;
    return gradient;
  }
};

struct PortablePolynomial2 {
  static constexpr auto kKind = FeatureMapKind::polynomial2;
  template <class T>
  static RowFeatures<T> features(const LinearHeadParams&, const std::vector<T>& x) {
    const T scale = 1 / std::sqrt(std::sqrt(T(x.size())));
    auto phi = x;
    for (auto& entry : phi) entry *= scale;
    phi.insert(phi.begin(), T(1));
    for (size_t a = 0; a < x.size(); ++a)
      for (size_t b = a; b < x.size(); ++b) phi.push_back(x[a] * x[b] * scale * scale * (a == b ? std::sqrt(T(0.5)) : T(1)));
    return {std::move(phi)};
  }
  template <class T>
  static std::vector<T> gradient(const LinearHeadParams&, const std::vector<T>& x, const std::vector<T>& grad_phi) {
    const T scale = 1 / std::sqrt(std::sqrt(T(x.size())));
    std::vector<T> gradient(grad_phi.begin() + 1, grad_phi.begin() + 1 + int64_t(x.size()));
    size_t next = 1 + x.size();
    for (size_t a = 0; a < x.size(); ++a)
      for (size_t b = a; b < x.size(); ++b) {
        const T grad_product = grad_phi[next++] * scale * (a == b ? std::sqrt(T(0.5)) : T(1));
        gradient[a] += grad_product * x[b];
        gradient[b] += grad_product * x[a];
      }
    for (auto& entry : gradient) entry *= scale;
    return gradient;
  }
};

// FAVOR+, whose exponents are ωx̃ − ‖x̃‖²/2 with x̃ = x/D^¼.
struct PortableFavor {
  static constexpr auto kKind = FeatureMapKind::favor;
  template <class T>
  static RowFeatures<T> features(const LinearHeadParams& p, const std::vector<T>& x) {
    std::vector<T> exponents(static_cast<size_t>(p.feature_count));
    const T* direction = static_cast<const T*>(p.projection);
    for (auto& exponent : exponents) {
      exponent = dot(x, direction);
      direction += padded(p.head_dim);
    }
    const T largest = *std::max_element(exponents.begin(), exponents.end());
    for (auto& exponent : exponents) exponent = std::exp(exponent - largest) / std::sqrt(T(p.feature_count));
    return {std::move(exponents), largest - dot(x, x.data()) / (2 * std::sqrt(T(p.head_dim)))};
  }
  template <class T>
  static std::vector<T> gradient(const LinearHeadParams& p, const std::vector<T>& x, const std::vector<T>& grad_phi) {
    auto grad_exponents = features(p, x).phi;
    T sum = 0;
    for (size_t f = 0; f < grad_exponents.size(); ++f) sum += grad_exponents[f] *= grad_phi[f];
    std::vector<T> gradient(x.size());
    const T* direction = static_cast<const T*>(p.projection);
    for (size_t f = 0; f < grad_exponents.size(); ++f, direction += padded(p.head_dim))
      for (size_t d = 0; d < x.size(); ++d) gradient[d] += grad_exponents[f] * direction[d];
    for (size_t d = 0; d < x.size(); ++d) gradient[d] -= x[d] * sum / std::sqrt(T(p.head_dim));
    return gradient;
  }
};

using PortableFeatureMaps =
    FeatureMapList<PortableElu, PortableElu01, PortableRelu, PortableTaylor, PortablePolynomial2, PortableFavor>;

// E is the tensors' element type, T the accumulator dtype. LinearKernels documents the public functions.
template <class E, class T>
class PortableLinear {
 public:
  explicit PortableLinear(const LinearHeadParams& params)
      : p_(params),
        features_(padded(params.feature_count)),
        values_(padded(params.value_dim)),
        scales_(has_scales(params.update)) {}

  // Adds keys to S [F,M] or, transposed, to T [M,F], and to Z.
  void add_keys(int64_t begin, int64_t end, bool transposed, T* state, T* z) {
    for (int64_t j = begin; j < std::min(end, p_.visible_keys); ++j) {
      auto [kappa, scale] = features(p_.k, j);
      const auto v = value(j);
      multiply(kappa, factor_in_state(scale, state, z));
      if (transposed) add_outer(v, kappa, features_, state);
      else add_outer(kappa, v, values_, state);
      for (size_t f = 0; f < kappa.size(); ++f) z[f] += kappa[f];
    }
  }

  void forward(int64_t begin, int64_t end, T* s, T* z) {
    for (int64_t i = begin; i < end; ++i) {
      add_keys(i, i + 1, false, s, z);
      read(i, i + 1, s, z);
    }
  }

  void read(int64_t begin, int64_t end, const T* s, const T* z) {
    for (int64_t i = begin; i < end; ++i) {
      const auto [phi, scale] = features(p_.q, i);
      const T total = dot(phi, z) + epsilon(scale, z);
      if (p_.normalizer) set_normalizer(i, total, z);
      auto numerator = product(phi, s, values_, p_.value_dim);
      for (auto& x : numerator) x /= total;
      store(p_.output, i, numerator);
    }
  }

  void backward_queries(int64_t begin, int64_t end, bool causal, T* t, T* z) {
    for (int64_t i = begin; i < end; ++i) {
      if (causal) add_keys(i, i + 1, true, t, z);
      const auto [phi, scale] = features(p_.q, i);
      const auto g = scaled_gradient(i);
      auto grad_phi = product(g, t, features_, p_.feature_count);
      // A normalizer that is infinite in T consists of ε.
      const T share = std::isinf(normalizer(i)) ? T(1) : epsilon(scale, z) / normalizer(i);
      const T delta = dot(g, static_cast<const T*>(p_.value_shift)) * share - dot(phi, grad_phi.data()) / normalizer(i);
      static_cast<T*>(p_.grad_normalizer)[i] = delta;
      for (size_t f = 0; f < grad_phi.size(); ++f) grad_phi[f] += delta * z[f];
      store(p_.grad_q, i, gradient_of_row(p_.q, i, grad_phi));
    }
  }

  void add_queries(int64_t begin, int64_t end, T* r, T* y) {
    for (int64_t i = begin; i < end; ++i) {
      auto phi = features(p_.q, i).phi;
      if (scales_) multiply(phi, factor_in_state(-state_scale(i), r, y));
      const T delta = static_cast<const T*>(p_.grad_normalizer)[i];
      add_outer(phi, scaled_gradient(i), values_, r);
      for (size_t f = 0; f < phi.size(); ++f) y[f] += delta * phi[f];
    }
  }

  void backward_keys(int64_t begin, int64_t end, bool causal, T* r, T* y) {
    for (int64_t j = end - 1; j >= begin; --j) {
      if (causal) add_queries(j, j + 1, r, y);
      if (j >= p_.visible_keys) {
        store(p_.grad_k, j, Vector(size_t(p_.head_dim)));
        store(p_.grad_v, j, Vector(size_t(p_.value_dim)));
        continue;
      }
      const auto [kappa, scale] = features(p_.k, j);
      const T factor = scales_ ? std::exp(scale + y[features_]) : T(1);
      auto grad_v = product(kappa, r, values_, p_.value_dim);
      multiply(grad_v, factor);
      store(p_.grad_v, j, grad_v);
      const auto v = value(j);
      Vector grad_kappa(static_cast<size_t>(p_.feature_count));
      for (size_t f = 0; f < grad_kappa.size(); ++f) grad_kappa[f] = factor * (dot(v, r + int64_t(f) * values_) + y[f]);
      store(p_.grad_k, j, gradient_of_row(p_.k, j, grad_kappa));
    }
  }

  void step(T* s, T* z) {
    features_ = p_.feature_count;
    values_ = p_.value_dim;
    forward(0, 1, s, z);
  }

 private:
  using Vector = std::vector<T>;

  static Vector row(const Rows& rows, int64_t i, int64_t dim) {
    const E* from = static_cast<const E*>(rows.data) + i * rows.stride;
    return Vector(from, from + dim);
  }
  // A row of v minus the value shift, if there is one.
  Vector value(int64_t j) const {
    auto v = row(p_.v, j, p_.value_dim);
    if (const auto* shift = static_cast<const T*>(p_.value_shift))
      for (size_t m = 0; m < v.size(); ++m) v[m] -= shift[m];
    return v;
  }
  // ε divided by e^(scale of the query + scale of the state whose vector is z).
  T epsilon(T scale, const T* z) const { return scales_ ? T(p_.epsilon) * std::exp(-(scale + z[features_])) : T(p_.epsilon); }
  static void store(const Rows& rows, int64_t i, const Vector& x) {
    std::copy(x.begin(), x.end(), static_cast<E*>(rows.data) + i * rows.stride);
  }
  RowFeatures<T> features(const Rows& rows, int64_t i) const {
    RowFeatures<T> result;
    with_feature_map(PortableFeatureMaps(), p_.map, [&](auto map) { result = map.features(p_, row(rows, i, p_.head_dim)); });
    return result;
  }
  Vector gradient_of_row(const Rows& rows, int64_t i, const Vector& grad_features) const {
    Vector result;
    with_feature_map(PortableFeatureMaps(), p_.map,
                     [&](auto map) { result = map.gradient(p_, row(rows, i, p_.head_dim), grad_features); });
    return result;
  }
  Vector scaled_gradient(int64_t i) const {
    auto g = row(p_.grad_output, i, p_.value_dim);
    for (auto& x : g) x /= normalizer(i);
    return g;
  }

  int64_t normalizers() const { return normalizer_numbers(p_.update); }
  T normalizer(int64_t i) const { return static_cast<const T*>(p_.normalizer)[i * normalizers()]; }
  T state_scale(int64_t i) const { return static_cast<const T*>(p_.normalizer)[i * normalizers() + 1]; }
  void set_normalizer(int64_t i, T total, const T* z) const {
    T* to = static_cast<T*>(p_.normalizer) + i * normalizers();
    to[0] = total;
    if (scales_) to[1] = z[features_];
  }
  // Raises the scale of the state to at least `scale`, and returns the factor by which a term of this scale must be multiplied in
  // the state. For maps without scales it is 1.
  T factor_in_state(T scale, T* matrix, T* vector) const {
    if (!scales_) return 1;
    T& current = vector[features_];
    if (scale > current) {
      const T factor = std::exp(current - scale);
      for (int64_t i = 0; i < features_ * values_; ++i) matrix[i] *= factor;
      for (int64_t f = 0; f < features_; ++f) vector[f] *= factor;
      current = scale;
    }
    return std::exp(scale - current);
  }
  static void multiply(Vector& x, T factor) {
    for (auto& entry : x) entry *= factor;
  }
  // Σ_i a[i] · state[i], where state[i] is a row of `dim` numbers.
  static Vector product(const Vector& a, const T* state, int64_t stride, int64_t dim) {
    Vector sum(static_cast<size_t>(dim));
    for (size_t i = 0; i < a.size(); ++i)
      for (size_t m = 0; m < sum.size(); ++m) sum[m] += a[i] * state[int64_t(i) * stride + int64_t(m)];
    return sum;
  }
  static void add_outer(const Vector& a, const Vector& b, int64_t stride, T* state) {
    for (size_t i = 0; i < a.size(); ++i)
      for (size_t m = 0; m < b.size(); ++m) state[int64_t(i) * stride + int64_t(m)] += a[i] * b[m];
  }

  LinearHeadParams p_;
  int64_t features_, values_;  // padded
  bool scales_;
};

template <class E, class T>
constexpr LinearKernels kernels() {
  using Kernel = PortableLinear<E, T>;
  return {
      "portable",
      "portable",
      [](const LinearHeadParams&) { return int64_t{0}; },
      [](const LinearHeadParams& params, int64_t begin, int64_t end, void* s, void* z, void*) {
        Kernel(params).add_keys(begin, end, false, static_cast<T*>(s), static_cast<T*>(z));
      },
      [](const LinearHeadParams& params, int64_t begin, int64_t end, void* t, void* z, void*) {
        Kernel(params).add_keys(begin, end, true, static_cast<T*>(t), static_cast<T*>(z));
      },
      [](const LinearHeadParams& params, int64_t begin, int64_t end, void* s, void* z, void*) {
        Kernel(params).forward(begin, end, static_cast<T*>(s), static_cast<T*>(z));
      },
      [](const LinearHeadParams& params, int64_t begin, int64_t end, const void* s, const void* z, void*) {
        Kernel(params).read(begin, end, static_cast<const T*>(s), static_cast<const T*>(z));
      },
      [](const LinearHeadParams& params, int64_t begin, int64_t end, bool causal, void* t, void* z, void*) {
        Kernel(params).backward_queries(begin, end, causal, static_cast<T*>(t), static_cast<T*>(z));
      },
      [](const LinearHeadParams& params, int64_t begin, int64_t end, void* r, void* y, void*) {
        Kernel(params).add_queries(begin, end, static_cast<T*>(r), static_cast<T*>(y));
      },
      [](const LinearHeadParams& params, int64_t begin, int64_t end, bool causal, void* r, void* y, void*) {
        Kernel(params).backward_keys(begin, end, causal, static_cast<T*>(r), static_cast<T*>(y));
      },
      [](const LinearHeadParams& params, void* s, void* z, void*) {
        Kernel(params).step(static_cast<T*>(s), static_cast<T*>(z));
      },
  };
}

}  // namespace

const LinearKernels* linear_kernels_portable(ElementType element) {
  static const LinearKernels float32 = kernels<float, float>(), float64 = kernels<double, double>(),
                             bfloat16 = kernels<c10::BFloat16, float>();
  return by_element_type<LinearKernels>(element, &float32, &bfloat16, &float64);
}

}  // namespace attn::cpu
