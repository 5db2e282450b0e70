// A decoding step of recurrent attention, which reads and writes the state once.
#pragma once

#include "attn/cpu/chunk_rows.h"
#include "attn/recurrent/cpu/kernels.h"

namespace attn::cpu {
namespace {

// Processes one token. With a = e^g the new state is a S + k uᵀ, so the output is scale (a Sᵀq + (q·k) u), with u = β (v − a Sᵀk)
// for the delta rule, and u = v otherwise. Without the delta rule S is read and written in one pass. With it S is read twice, in
// blocks of columns that stay in the first-level cache from the first time to the second. With kFeatures each feature of the keys
// has its own decay, a S is diag(a) S, and q and k are multiplied by a.
template <class V, class E, bool kDelta, bool kFeatures>
class RecurrentStep {
 public:
  RecurrentStep(const RecurrentHeadParams& p, void* scratch)
      : p_(p),
        q_(static_cast<float*>(scratch)),
        k_(q_ + padded(p.key_dim)),
        decays_(k_ + padded(p.key_dim)),
        decayed_k_(decays_ + padded(p.key_dim)),
        v_(decayed_k_ + padded(p.key_dim)) {}

  static int64_t scratch_size(const RecurrentHeadParams& p) { return 4 * padded(p.key_dim) + padded(p.value_dim); }

  // Processes the token at `position`. Rows of the state are `width` numbers apart.
  void run(float* s, int64_t width, int64_t position) {
    width_ = width;
    position_ = position;
    const auto keys = padded(p_.key_dim), values = padded(p_.value_dim);
    load_rows<V, E>(p_.q, position, 1, p_.key_dim, q_, keys, 0, 1);
    load_rows<V, E>(p_.k, position, 1, p_.key_dim, k_, keys, 0, 1);
    load_rows<V, E>(p_.v, position, 1, p_.value_dim, v_, values, 0, 1);
    if (p_.normalizes) normalize(q_, keys), normalize(k_, keys);
    beta_ = p_.beta ? static_cast<const float*>(p_.beta)[position * p_.beta_stride] : 1;
    pair_ = dot<V>(q_, k_, keys);
    if constexpr (kFeatures) {
      load_rows<V, float>({const_cast<void*>(p_.g), p_.g_stride}, position, 1, p_.key_dim, decays_, keys, 0, 1);
      for (int64_t c = 0; c < keys; c += V::kLanes) {
        const auto a = V::exp(V::load(decays_ + c));
        V::store(decays_ + c, a);
        V::store(q_ + c, V::mul(V::load(q_ + c), a));
        V::store(decayed_k_ + c, V::mul(V::load(k_ + c), a));
      }
    } else {
      const float g = p_.g ? static_cast<const float*>(p_.g)[position * p_.g_stride] : 0;
      alignas(64) float lanes[V::kLanes];
      V::store(lanes, V::exp(V::all(g)));
      decay_ = lanes[0];
    }
    constexpr int kVectors = 4;
    int64_t c = 0;
    for (; c + kVectors * V::kLanes <= p_.value_dim; c += kVectors * V::kLanes) columns<kVectors>(s, c, V::kLanes);
    for (; c < p_.value_dim; c += V::kLanes)
      columns<1>(s, c, p_.value_dim - c < V::kLanes ? p_.value_dim - c : int64_t{V::kLanes});
  }

 private:
  static void normalize(float* row, int64_t width) {
    scale_row<V>(row, width, 1 / __builtin_sqrtf(dot<V>(row, row, width) + float(kLengthEpsilon)));
  }

  // Processes kVectors vectors of columns from c on, of which the last vector has `last` columns.
  template <int kVectors>
  [[gnu::always_inline]] void columns(float* state, int64_t c, int64_t last) {
    const auto lanes = V::first(last);
    const auto load = [&](const float* from, int n) __attribute__((always_inline)) {
      return kVectors > 1 ? V::load(from + n * V::kLanes) : V::load(from, lanes);
    };
    // Copies of members, because the compiler must assume that a store of a vector changes members.
    const float *const rows_q = q_, *const rows_k = k_, *const read_with = kDelta && kFeatures ? decayed_k_ : k_,
                       *const decays = decays_;
    const int64_t width = width_, keys = p_.key_dim;
    const auto a = V::all(decay_);
    typename V::F read_k[kVectors], read_q[kVectors], u[kVectors];
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      read_k[n] = read_q[n] = V::zero();
      u[n] = V::load(v_ + c + n * V::kLanes);
    }
    // Writes vector n of a row of the new state.
    const auto write = [&](float* row, int n, typename V::F s, typename V::F k, typename V::F kept)
        __attribute__((always_inline)) {
      const auto next = V::fma(k, u[n], V::mul(kept, s));
      if (kVectors > 1) V::store(row + n * V::kLanes, next);
      else V::store(row, next, lanes);
    };
    float* row = state + c;
    for (int64_t d = 0; d < keys; ++d, row += width) {
      const auto q = V::all(rows_q[d]), k = V::all(read_with[d]), kept = kFeatures ? V::all(decays[d]) : a;
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) {
        const auto s = load(row, n);
        read_q[n] = V::fma(q, s, read_q[n]);
        if constexpr (kDelta) read_k[n] = V::fma(k, s, read_k[n]);
        else write(row, n, s, k, kept);
      }
    }
    const auto scale = V::all(float(p_.scale)), pair = V::all(pair_);
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      if constexpr (kDelta) u[n] = V::mul(V::all(beta_), V::sub(u[n], kFeatures ? read_k[n] : V::mul(a, read_k[n])));
      const auto output = V::mul(scale, V::fma(pair, u[n], kFeatures ? read_q[n] : V::mul(a, read_q[n])));
      E* to = static_cast<E*>(p_.output.data) + position_ * p_.output.stride + c + n * V::kLanes;
      if (kVectors > 1) V::store(to, output);
      else V::store(to, output, lanes);
    }
    if constexpr (kDelta) {
      row = state + c;
      for (int64_t d = 0; d < keys; ++d, row += width) {
        const auto k = V::all(rows_k[d]), kept = kFeatures ? V::all(decays[d]) : a;
#pragma GCC unroll 4
        for (int n = 0; n < kVectors; ++n) write(row, n, load(row, n), k, kept);
      }
    }
  }

  const RecurrentHeadParams& p_;
  float *q_, *k_, *decays_, *decayed_k_, *v_;  // with kFeatures, q_ is multiplied by the decays
  int64_t width_ = 0, position_ = 0;
  float decay_ = 1, beta_ = 1, pair_ = 0;
};

}  // namespace
}  // namespace attn::cpu
