// A decoding step of recurrent attention, which reads and writes the state once.
#pragma once

#include "attn/cpu/chunk_rows.h"
#include "attn/recurrent/cpu/kernels.h"

namespace attn::cpu {
namespace {

// One token. With a = e^g, the new state is a S + k uᵀ, and so the output is scale (a Sᵀq + (q·k) u) with u = β (v − a Sᵀk), or
// u = v without the delta rule. A block of columns of S stays in the first-level cache from its first to its second use. With
// kFeatures each feature of the keys has a decay of its own, and a S is diag(a) S: rows of q and k are multiplied by a.
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

  // RecurrentKernels::step
  void run(float* s) {
    const auto keys = padded(p_.key_dim), values = padded(p_.value_dim);
    load_rows<V, E>(p_.q, 0, 1, p_.key_dim, q_, keys, 0, 1);
    load_rows<V, E>(p_.k, 0, 1, p_.key_dim, k_, keys, 0, 1);
    load_rows<V, E>(p_.v, 0, 1, p_.value_dim, v_, values, 0, 1);
    if (p_.normalizes) normalize(q_, keys), normalize(k_, keys);
    beta_ = p_.beta ? *static_cast<const float*>(p_.beta) : 1;
    pair_ = dot<V>(q_, k_, keys);
    if constexpr (kFeatures) {
      load_rows<V, float>({const_cast<void*>(p_.g), 0}, 0, 1, p_.key_dim, decays_, keys, 0, 1);
      for (int64_t c = 0; c < keys; c += V::kLanes) {
        const auto a = V::exp(V::load(decays_ + c));
        V::store(decays_ + c, a);
        V::store(q_ + c, V::mul(V::load(q_ + c), a));
        V::store(decayed_k_ + c, V::mul(V::load(k_ + c), a));
      }
    } else {
      const float g = p_.g ? *static_cast<const float*>(p_.g) : 0;
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

  // The columns from c on, of which the last vector has so many.
  template <int kVectors>
  [[gnu::always_inline]] void columns(float* state, int64_t c, int64_t last) {
    const auto lanes = V::first(last);
    const auto load = [&](const float* from, int n) __attribute__((always_inline)) {
      return kVectors > 1 ? V::load(from + n * V::kLanes) : V::load(from, lanes);
    };
    const int64_t width = p_.value_dim;
    typename V::F read_k[kVectors], read_q[kVectors], u[kVectors];
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) read_k[n] = read_q[n] = V::zero();
    for (int64_t d = 0; d < p_.key_dim; ++d) {
      const auto q = V::all(q_[d]), k = V::all(kFeatures ? decayed_k_[d] : k_[d]);
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) {
        const auto s = load(state + d * width + c, n);
        if constexpr (kDelta) read_k[n] = V::fma(k, s, read_k[n]);
        read_q[n] = V::fma(q, s, read_q[n]);
      }
    }
    const auto a = V::all(decay_), scale = V::all(float(p_.scale)), pair = V::all(pair_);
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) {
      u[n] = V::load(v_ + c + n * V::kLanes);
      if constexpr (kDelta) u[n] = V::mul(V::all(beta_), V::sub(u[n], kFeatures ? read_k[n] : V::mul(a, read_k[n])));
      const auto output = V::mul(scale, V::fma(pair, u[n], kFeatures ? read_q[n] : V::mul(a, read_q[n])));
      E* to = static_cast<E*>(p_.output.data) + c + n * V::kLanes;
      if (kVectors > 1) V::store(to, output);
      else V::store(to, output, lanes);
    }
    for (int64_t d = 0; d < p_.key_dim; ++d) {
      const auto k = V::all(k_[d]), kept = kFeatures ? V::all(decays_[d]) : a;
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) {
        float* at = state + d * width + c;
        const auto s = V::fma(k, u[n], V::mul(kept, load(at, n)));
        if (kVectors > 1) V::store(at + n * V::kLanes, s);
        else V::store(at, s, lanes);
      }
    }
  }

  const RecurrentHeadParams& p_;
  float *q_, *k_, *decays_, *decayed_k_, *v_;  // with kFeatures, q_ is multiplied by the decays
  float decay_ = 1, beta_ = 1, pair_ = 0;
};

}  // namespace
}  // namespace attn::cpu
