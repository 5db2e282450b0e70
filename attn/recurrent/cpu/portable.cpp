// The portable kernels of recurrent attention. They process one position after the other, by the definition in kernels.h, and
// accumulate in float64 for float64 tensors and in float32 for others. "auto" chooses them where there are no vector kernels.
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "attn/cpu/kernel_table.h"
#include "attn/recurrent/cpu/kernels.h"

namespace attn::cpu {
namespace {

// The number of positions of a block. The backward pass holds the states before the blocks between two checkpoints, and before
// the positions of one block.
constexpr int64_t kBlock = 16;
static_assert(kCheckpoint % kBlock == 0);

// E is the tensors' element type, T the accumulator dtype. A state is [K, stride].
template <class E, class T>
class PortableRecurrent {
 public:
  PortableRecurrent(const RecurrentHeadParams& p, int64_t stride) : p_(p), stride_(stride) {}

  static int64_t scratch_size(const RecurrentHeadParams& p, bool backward) {
    return backward ? (kCheckpoint / kBlock + kBlock) * state_size(p) : 0;
  }

  void forward(int64_t begin, int64_t end, T* s, T* checkpoints) const {
    for (int64_t t = begin; t < end; ++t) {
      if (checkpoints && (t - begin) % kCheckpoint == 0) checkpoints = std::copy_n(s, size(), checkpoints);
      advance(t, s);
      if (!p_.q.data) continue;
      const auto q = used(p_.q, t);
      auto* const output = row<E>(p_.output, t);
      for (int64_t m = 0; m < p_.value_dim; ++m) {
        T sum = 0;
        for (int64_t d = 0; d < p_.key_dim; ++d) sum += s[d * stride_ + m] * q.x[size_t(d)];
        output[m] = E(T(p_.scale) * sum);
      }
    }
  }

  void backward(int64_t begin, int64_t end, const T* checkpoints, T* ds, T* scratch) const {
    T* const of_blocks = scratch;
    T* const of_positions = scratch + kCheckpoint / kBlock * size();
    for (int64_t part = (end - begin + kCheckpoint - 1) / kCheckpoint; part-- > 0;) {
      const int64_t first = begin + part * kCheckpoint, last = std::min(end, first + kCheckpoint);
      const int64_t blocks = (last - first + kBlock - 1) / kBlock;
      std::copy_n(checkpoints + part * size(), size(), of_blocks);
      for (int64_t block = 1; block < blocks; ++block) {
        T* const s = of_blocks + block * size();
        std::copy_n(s - size(), size(), s);
        for (int64_t t = 0; t < kBlock; ++t) advance(first + (block - 1) * kBlock + t, s);
      }
      for (int64_t block = blocks; block-- > 0;) {
        const int64_t from = first + block * kBlock, to = std::min(last, from + kBlock);
        std::copy_n(of_blocks + block * size(), size(), of_positions);
        for (int64_t t = from; t + 1 < to; ++t) {
          T* const s = of_positions + (t + 1 - from) * size();
          std::copy_n(s - size(), size(), s);
          advance(t, s);
        }
        for (int64_t t = to; t-- > from;) backward_position(t, of_positions + (t - from) * size(), ds);
      }
    }
  }

 private:
  // A row of q or k as it is used: normalized if asked for, with the factor `inverse` by which it was multiplied.
  struct UsedRow {
    std::vector<T> x;
    T inverse = 1;
  };

  int64_t size() const { return p_.key_dim * stride_; }
  template <class Element>
  static Element* row(const Rows& rows, int64_t t) {
    return static_cast<Element*>(rows.data) + t * rows.stride;
  }
  std::vector<T> loaded(const Rows& rows, int64_t t, int64_t dim) const {
    const auto* const from = row<const E>(rows, t);
    return {from, from + dim};
  }
  UsedRow used(const Rows& rows, int64_t t) const {
    UsedRow used{loaded(rows, t, p_.key_dim)};
    if (!p_.normalizes) return used;
    T squares = T(kLengthEpsilon);
    for (const T x : used.x) squares += x * x;
    used.inverse = 1 / std::sqrt(squares);
    for (T& x : used.x) x *= used.inverse;
    return used;
  }
  // The factor e^g of feature d.
  T kept(int64_t t, int64_t d) const {
    return p_.g ? std::exp(static_cast<const T*>(p_.g)[t * p_.g_stride + (p_.feature_gates ? d : 0)]) : T(1);
  }
  T beta(int64_t t) const { return p_.beta ? static_cast<const T*>(p_.beta)[t * p_.beta_stride] : T(1); }
  // Sᵀx
  std::vector<T> read(const T* s, const std::vector<T>& x) const {
    std::vector<T> sums(size_t(p_.value_dim), T(0));
    for (int64_t d = 0; d < p_.key_dim; ++d)
      for (int64_t m = 0; m < p_.value_dim; ++m) sums[size_t(m)] += s[d * stride_ + m] * x[size_t(d)];
    return sums;
  }
  // S y
  std::vector<T> read_transposed(const T* s, const std::vector<T>& y) const {
    std::vector<T> sums(size_t(p_.key_dim), T(0));
    for (int64_t d = 0; d < p_.key_dim; ++d)
      for (int64_t m = 0; m < p_.value_dim; ++m) sums[size_t(d)] += s[d * stride_ + m] * y[size_t(m)];
    return sums;
  }
  // S += x yᵀ
  void add_product(const std::vector<T>& x, const std::vector<T>& y, T* s) const {
    for (int64_t d = 0; d < p_.key_dim; ++d)
      for (int64_t m = 0; m < p_.value_dim; ++m) s[d * stride_ + m] += x[size_t(d)] * y[size_t(m)];
  }
  // S ← e^(g_t) S. Where e^(g_t) is 0, S becomes 0 even if it is infinite or NaN.
  void decay(int64_t t, T* s) const {
    T factor = kept(t, 0);
    for (int64_t d = 0; d < p_.key_dim; ++d) {
      if (p_.feature_gates) factor = kept(t, d);
      for (int64_t i = d * stride_; i < (d + 1) * stride_; ++i) s[i] = factor == 0 ? T(0) : factor * s[i];
    }
  }
  // The u of position t, which adds k uᵀ to the decayed state s.
  std::vector<T> update(int64_t t, const std::vector<T>& k, const T* s) const {
    auto u = loaded(p_.v, t, p_.value_dim);
    if (!p_.delta) return u;
    const auto known = read(s, k);
    for (size_t m = 0; m < u.size(); ++m) u[m] = beta(t) * (u[m] - known[m]);
    return u;
  }
  void advance(int64_t t, T* s) const {
    decay(t, s);
    const auto k = used(p_.k, t);
    add_product(k.x, update(t, k.x, s), s);
  }

  // `s` is the state before position t, and becomes the state after it. `ds` is the gradient of the state after it, and becomes
  // that of the state before it.
  void backward_position(int64_t t, T* s, T* ds) const {
    const auto q = used(p_.q, t), k = used(p_.k, t);
    auto o = loaded(p_.grad_output, t, p_.value_dim);
    for (T& x : o) x *= T(p_.scale);
    decay(t, s);
    const auto known = p_.delta ? read(s, k.x) : std::vector<T>();
    const auto u = update(t, k.x, s);
    const std::vector<T> decayed(s, s + size());
    add_product(k.x, u, s);
    store_gradient(p_.grad_q, t, q, read_transposed(s, o));
    add_product(q.x, o, ds);
    auto grad_k = read_transposed(ds, u);
    auto grad_u = read(ds, k.x);
    if (p_.delta) {
      const auto v = loaded(p_.v, t, p_.value_dim);
      T grad_beta = 0;
      for (size_t m = 0; m < v.size(); ++m) grad_beta += grad_u[m] * (v[m] - known[m]);
      if (p_.beta) static_cast<T*>(p_.grad_beta)[t] = grad_beta;
      auto grad_known = grad_u;
      for (size_t m = 0; m < v.size(); ++m) {
        grad_u[m] *= beta(t);
        grad_known[m] = -grad_u[m];
      }
      const auto through_read = read_transposed(decayed.data(), grad_known);
      for (size_t d = 0; d < grad_k.size(); ++d) grad_k[d] += through_read[d];
      add_product(k.x, grad_known, ds);
    }
    for (int64_t m = 0; m < p_.value_dim; ++m) row<E>(p_.grad_v, t)[m] = E(grad_u[size_t(m)]);
    store_gradient(p_.grad_k, t, k, std::move(grad_k));
    T sum = 0;
    for (int64_t d = 0; p_.g && d < p_.key_dim; ++d) {
      for (int64_t i = d * stride_; i < (d + 1) * stride_; ++i) sum += ds[i] * decayed[size_t(i)];
      const T gradient = kept(t, d) == 0 ? T(0) : sum;
      if (p_.feature_gates) static_cast<T*>(p_.grad_g)[t * p_.grad_g_stride + d] = gradient, sum = 0;
      else if (d + 1 == p_.key_dim) static_cast<T*>(p_.grad_g)[t] = gradient;
    }
    decay(t, ds);
  }

  // Stores the gradient of a row of q or k, from `gradient`, which is that of the row as it is used.
  void store_gradient(const Rows& rows, int64_t t, const UsedRow& used, std::vector<T> gradient) const {
    if (p_.normalizes) {
      T along = 0;
      for (size_t d = 0; d < gradient.size(); ++d) along += gradient[d] * used.x[d];
      for (size_t d = 0; d < gradient.size(); ++d) gradient[d] = used.inverse * (gradient[d] - used.x[d] * along);
    }
    for (size_t d = 0; d < gradient.size(); ++d) {
      if (!p_.shares_keys) row<E>(rows, t)[d] = E(gradient[d]);
      else row<T>(rows, t)[d] = (p_.adds_gradients ? row<T>(rows, t)[d] : T(0)) + gradient[d];
    }
  }

  const RecurrentHeadParams& p_;
  int64_t stride_;
};

template <class E, class T>
constexpr RecurrentKernels portable_kernels() {
  return {
      "portable",
      PortableRecurrent<E, T>::scratch_size,
      [](const RecurrentHeadParams& p, int64_t begin, int64_t end, void* state, void* checkpoints, void*) {
        // The kernels process only the first key_dim rows of a padded state. The rows after them stay zero.
        PortableRecurrent<E, T>(p, padded(p.value_dim)).forward(begin, end, static_cast<T*>(state), static_cast<T*>(checkpoints));
      },
      [](const RecurrentHeadParams& p, int64_t begin, int64_t end, const void* checkpoints, void* grad_state, void* scratch) {
        PortableRecurrent<E, T>(p, padded(p.value_dim))
            .backward(begin, end, static_cast<const T*>(checkpoints), static_cast<T*>(grad_state), static_cast<T*>(scratch));
      },
      [](const RecurrentHeadParams& p, void* state, void*) {
        PortableRecurrent<E, T>(p, p.value_dim).forward(0, 1, static_cast<T*>(state), nullptr);
      },
  };
}

}  // namespace

const RecurrentKernels* recurrent_kernels_portable(ElementType element) {
  static constexpr auto float32 = portable_kernels<float, float>();
  static constexpr auto bfloat16 = portable_kernels<c10::BFloat16, float>();
  static constexpr auto float64 = portable_kernels<double, double>();
  return by_element_type<RecurrentKernels>(element, &float32, &bfloat16, &float64);
}

}  // namespace attn::cpu
