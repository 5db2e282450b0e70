// The plain version: one position after the other, in float64 for float64 tensors and in float32 for others. What the vector
// kernels are tested against, and what runs where there are none.
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "attn/linear/cpu/kernels.h"

namespace attn::kernels {
namespace {

template <class T>
T length_of(const std::vector<T>& x) {
  T squares = 0;
  for (const T entry : x) squares += entry * entry;
  return std::isnan(squares) ? squares : std::max(std::sqrt(squares), T(1e-12));
}

template <class T>
std::vector<T> features_of(LinearFeatures map, const std::vector<T>& x) {
  auto phi = x;
  switch (map) {
    case LinearFeatures::elu:
      for (auto& entry : phi) entry = entry > 0 ? entry + 1 : std::exp(entry);
      break;
    case LinearFeatures::elu01:
      for (auto& entry : phi) entry = entry > 0 ? entry + 1 : T(0.1) * std::exp(entry) + T(0.9);
      break;
    case LinearFeatures::relu:
      for (auto& entry : phi) entry = entry > 0 || std::isnan(entry) ? entry : T(0);
      break;
    case LinearFeatures::taylor: {
      const T length = length_of(x);
      for (auto& entry : phi) entry /= length;
      phi.insert(phi.begin(), T(1));
      break;
    }
    case LinearFeatures::polynomial2: {
      const T scale = 1 / std::sqrt(std::sqrt(T(x.size())));
      for (auto& entry : phi) entry *= scale;
      phi.insert(phi.begin(), T(1));
      for (size_t a = 0; a < x.size(); ++a)
        for (size_t b = a; b < x.size(); ++b) phi.push_back(x[a] * x[b] * scale * scale * (a == b ? std::sqrt(T(0.5)) : T(1)));
      break;
    }
    case LinearFeatures::favor: break;  // Linear::features
  }
  return phi;
}

// Of x, from the gradient of its features.
template <class T>
std::vector<T> gradient_of(LinearFeatures map, const std::vector<T>& x, const std::vector<T>& of_phi) {
  auto gradient = of_phi;
  switch (map) {
    case LinearFeatures::elu:
      for (size_t d = 0; d < x.size(); ++d) gradient[d] *= x[d] > 0 ? T(1) : std::exp(x[d]);
      break;
    case LinearFeatures::elu01:
      for (size_t d = 0; d < x.size(); ++d) gradient[d] *= x[d] > 0 ? T(1) : T(0.1) * std::exp(x[d]);
      break;
    case LinearFeatures::relu:
      for (size_t d = 0; d < x.size(); ++d) gradient[d] = x[d] > 0 ? gradient[d] : T(0);
      break;
    case LinearFeatures::taylor: {
      const T length = length_of(x);
      T along = 0;
      for (size_t d = 0; d < x.size(); ++d) along += x[d] / length * of_phi[1 + d];
      gradient.erase(gradient.begin());
      for (size_t d = 0; d < x.size(); ++d) gradient[d] = (gradient[d] - x[d] / length * along) / length;
      break;
    }
    case LinearFeatures::polynomial2: {
      const T scale = 1 / std::sqrt(std::sqrt(T(x.size())));
      gradient.assign(of_phi.begin() + 1, of_phi.begin() + 1 + int64_t(x.size()));
      size_t next = 1 + x.size();
      for (size_t a = 0; a < x.size(); ++a)
        for (size_t b = a; b < x.size(); ++b) {
          const T of_product = of_phi[next++] * scale * (a == b ? std::sqrt(T(0.5)) : T(1));
          gradient[a] += of_product * x[b];
          gradient[b] += of_product * x[a];
        }
      for (auto& entry : gradient) entry *= scale;
      break;
    }
    case LinearFeatures::favor: break;  // Linear::through_map
  }
  return gradient;
}

// E: elements of the tensors, T: of states and sums.
template <class E, class T>
class Linear {
 public:
  explicit Linear(const LinearHead& head)
      : h_(head),
        features_(padded(head.feature_count)),
        values_(padded(head.value_dim)),
        map_(head.features),
        scales_(has_scales(head.features)) {}

  // S [F,M] or, transposed, T [M,F]; Z.
  void add_keys(int64_t begin, int64_t end, bool transposed, T* state, T* z) {
    for (int64_t j = begin; j < std::min(end, h_.visible_keys); ++j) {
      auto [kappa, scale] = features(h_.k, j);
      const auto v = row(h_.v, j, h_.value_dim);
      multiply(kappa, share(scale, state, z));
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
      const auto [phi, scale] = features(h_.q, i);
      const T epsilon = scales_ ? T(h_.epsilon) * std::exp(-(scale + z[features_])) : T(h_.epsilon);
      const T total = dot(phi, z) + epsilon;
      if (h_.normalizer) set_normalizer(i, total, z);
      auto numerator = product(phi, s, values_, h_.value_dim);
      for (auto& x : numerator) x /= total;
      store(h_.output, i, numerator);
    }
  }

  void backward_queries(int64_t begin, int64_t end, bool causal, T* t, T* z) {
    for (int64_t i = begin; i < end; ++i) {
      if (causal) add_keys(i, i + 1, true, t, z);
      const auto phi = features(h_.q, i).phi;
      auto of_phi = product(scaled_gradient(i), t, features_, h_.feature_count);
      const T delta = -dot(phi, of_phi.data()) / normalizer(i);
      static_cast<T*>(h_.normalizer_gradient)[i] = delta;
      for (size_t f = 0; f < of_phi.size(); ++f) of_phi[f] += delta * z[f];
      store(h_.q_gradient, i, through_map(h_.q, i, of_phi));
    }
  }

  void add_queries(int64_t begin, int64_t end, T* r, T* y) {
    for (int64_t i = begin; i < end; ++i) {
      auto phi = features(h_.q, i).phi;
      if (scales_) multiply(phi, share(-state_scale(i), r, y));
      const T delta = static_cast<const T*>(h_.normalizer_gradient)[i];
      add_outer(phi, scaled_gradient(i), values_, r);
      for (size_t f = 0; f < phi.size(); ++f) y[f] += delta * phi[f];
    }
  }

  void backward_keys(int64_t begin, int64_t end, bool causal, T* r, T* y) {
    for (int64_t j = end - 1; j >= begin; --j) {
      if (causal) add_queries(j, j + 1, r, y);
      if (j >= h_.visible_keys) {
        store(h_.k_gradient, j, Vector(size_t(h_.head_dim)));
        store(h_.v_gradient, j, Vector(size_t(h_.value_dim)));
        continue;
      }
      const auto [kappa, scale] = features(h_.k, j);
      const T factor = scales_ ? std::exp(scale + y[features_]) : T(1);
      auto of_v = product(kappa, r, values_, h_.value_dim);
      multiply(of_v, factor);
      store(h_.v_gradient, j, of_v);
      const auto v = row(h_.v, j, h_.value_dim);
      Vector of_kappa(static_cast<size_t>(h_.feature_count));
      for (size_t f = 0; f < of_kappa.size(); ++f) of_kappa[f] = factor * (dot(v, r + int64_t(f) * values_) + y[f]);
      store(h_.k_gradient, j, through_map(h_.k, j, of_kappa));
    }
  }

  void step(T* s, T* z) {
    features_ = h_.feature_count, values_ = h_.value_dim;
    forward(0, 1, s, z);
  }

 private:
  using Vector = std::vector<T>;

  static Vector row(const Rows& rows, int64_t i, int64_t dim) {
    const E* from = static_cast<const E*>(rows.data) + i * rows.stride;
    return Vector(from, from + dim);
  }
  static void store(const Rows& rows, int64_t i, const Vector& x) {
    std::copy(x.begin(), x.end(), static_cast<E*>(rows.data) + i * rows.stride);
  }
  struct Features {
    Vector phi;
    T scale = 0;
  };
  Features features(const Rows& rows, int64_t i) const {
    const auto x = row(rows, i, h_.head_dim);
    if (map_ != LinearFeatures::favor) return {features_of(map_, x)};
    Vector exponents(static_cast<size_t>(h_.feature_count));
    const T* direction = static_cast<const T*>(h_.projection);
    for (auto& exponent : exponents) exponent = dot(x, direction), direction += padded(h_.head_dim);
    const T largest = *std::max_element(exponents.begin(), exponents.end());
    for (auto& exponent : exponents) exponent = std::exp(exponent - largest) / std::sqrt(T(h_.feature_count));
    return {exponents, largest - dot(x, x.data()) / (2 * std::sqrt(T(h_.head_dim)))};
  }
  Vector through_map(const Rows& rows, int64_t i, const Vector& of_features) const {
    const auto x = row(rows, i, h_.head_dim);
    if (map_ != LinearFeatures::favor) return gradient_of(map_, x, of_features);
    // Of the exponents ωx̃ − ‖x̃‖²/2.
    auto of_exponents = features(rows, i).phi;
    T sum = 0;
    for (size_t f = 0; f < of_exponents.size(); ++f) sum += of_exponents[f] *= of_features[f];
    auto gradient = product(of_exponents, static_cast<const T*>(h_.projection), padded(h_.head_dim), h_.head_dim);
    for (size_t d = 0; d < x.size(); ++d) gradient[d] -= x[d] * sum / std::sqrt(T(h_.head_dim));
    return gradient;
  }
  Vector scaled_gradient(int64_t i) const {
    auto g = row(h_.gradient, i, h_.value_dim);
    for (auto& x : g) x /= normalizer(i);
    return g;
  }

  int64_t normalizers() const { return scales_ ? 2 : 1; }
  T normalizer(int64_t i) const { return static_cast<const T*>(h_.normalizer)[i * normalizers()]; }
  T state_scale(int64_t i) const { return static_cast<const T*>(h_.normalizer)[i * normalizers() + 1]; }
  void set_normalizer(int64_t i, T total, const T* z) const {
    T* to = static_cast<T*>(h_.normalizer) + i * normalizers();
    to[0] = total;
    if (scales_) to[1] = z[features_];
  }
  // What a term of this scale is to be multiplied by in a state, whose scale rises to it first.
  T share(T scale, T* matrix, T* vector) const {
    if (!scales_) return 1;
    T& of_state = vector[features_];
    if (scale > of_state) {
      const T factor = std::exp(of_state - scale);
      for (int64_t i = 0; i < features_ * values_; ++i) matrix[i] *= factor;
      for (int64_t f = 0; f < features_; ++f) vector[f] *= factor;
      of_state = scale;
    }
    return std::exp(scale - of_state);
  }
  static void multiply(Vector& x, T factor) {
    for (auto& entry : x) entry *= factor;
  }
  static T dot(const Vector& a, const T* b) {
    T sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }
  // Σ_i a[i] · state[i][0…dim)
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

  LinearHead h_;
  int64_t features_, values_;  // padded
  LinearFeatures map_;
  bool scales_;
};

template <class E, class T>
constexpr LinearKernels kernels() {
  using On = Linear<E, T>;
  return {
      "portable",
      [](const LinearHead&) { return int64_t{0}; },
      [](const LinearHead& head, int64_t begin, int64_t end, void* s, void* z, void*) {
        On(head).add_keys(begin, end, false, static_cast<T*>(s), static_cast<T*>(z));
      },
      [](const LinearHead& head, int64_t begin, int64_t end, void* t, void* z, void*) {
        On(head).add_keys(begin, end, true, static_cast<T*>(t), static_cast<T*>(z));
      },
      [](const LinearHead& head, int64_t begin, int64_t end, void* s, void* z, void*) {
        On(head).forward(begin, end, static_cast<T*>(s), static_cast<T*>(z));
      },
      [](const LinearHead& head, int64_t begin, int64_t end, const void* s, const void* z, void*) {
        On(head).read(begin, end, static_cast<const T*>(s), static_cast<const T*>(z));
      },
      [](const LinearHead& head, int64_t begin, int64_t end, bool causal, void* t, void* z, void*) {
        On(head).backward_queries(begin, end, causal, static_cast<T*>(t), static_cast<T*>(z));
      },
      [](const LinearHead& head, int64_t begin, int64_t end, void* r, void* y, void*) {
        On(head).add_queries(begin, end, static_cast<T*>(r), static_cast<T*>(y));
      },
      [](const LinearHead& head, int64_t begin, int64_t end, bool causal, void* r, void* y, void*) {
        On(head).backward_keys(begin, end, causal, static_cast<T*>(r), static_cast<T*>(y));
      },
      [](const LinearHead& head, void* s, void* z, void*) { On(head).step(static_cast<T*>(s), static_cast<T*>(z)); },
  };
}

}  // namespace

const LinearKernels* linear_kernels_portable(Element element) {
  static const LinearKernels float32 = kernels<float, float>(), float64 = kernels<double, double>(),
                             bfloat16 = kernels<c10::BFloat16, float>();
  return by_element<LinearKernels>(element, &float32, &bfloat16, &float64);
}

}  // namespace attn::kernels
