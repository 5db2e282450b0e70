// The backward pass of recurrent attention. Between two checkpoints it computes the states before each chunk again, and then goes
// through the chunks from the last to the first.
//
// With e, S₀ and S₁ as in chunk.h, N_ij = e_ij (q_i·k_j), A_ij = β_i e_ij (k_i·k_j) for j < i, ∂x the gradient of x, and o_i =
// scale · the gradient of output_i, a chunk has
//   ∂u_j  = Σ_(i≥j) N_ij o_i + e_15,j ∂S₁ᵀk_j
//   ∂w_j  = ∂u_j − Σ_(i>j) A_ij ∂w_i              a triangular system; w_i = β_i (v_i − e_i S₀ᵀk_i)
//   ∂N_ij = o_i·u_j      ∂A_ij = −∂w_i·u_j      ∂v_i = β_i ∂w_i
//   ∂q_i  = e_i S₀o_i + Σ_(j≤i) ∂N_ij e_ij k_j
//   ∂k_i  = −β_i e_i S₀∂w_i + Σ_(j<i) β_i ∂A_ij e_ij k_j                               where the state is read ("read")
//         + e_15,i ∂S₁u_i + Σ_(j≥i) ∂N_ji e_ji q_j + Σ_(j>i) β_j ∂A_ji e_ji k_j       where it is written ("written")
//   ∂S₀   = e_15 ∂S₁ + Σ_i e_i q_i o_iᵀ − Σ_i β_i e_i k_i ∂w_iᵀ
// The gradient of the sum of g up to position i is q_i·∂q_i + k_i·(∂k_i read) − k_i·(∂k_i written), and that of the last sum of
// the chunk also has e_15⟨S₀,∂S₁⟩ + Σ_i e_15,i k_i·∂S₁u_i. The gradient of g_i is the sum of these over the positions from i to
// the end of its segment. If each feature of the keys has a decay, the e are vectors that multiply rows elementwise, and the
// gradient of a decay is the part of these scalar products that belongs to its feature.
#pragma once

#include "attn/recurrent/cpu/chunk.h"

namespace attn::cpu {
namespace {

template <class V, class E, bool kDelta, bool kFeatures>
class RecurrentBackward : RecurrentChunk<V, E, kDelta, kFeatures> {
  using Chunk = RecurrentChunk<V, E, kDelta, kFeatures>;
  using Chunk::b_, Chunk::p_, Chunk::kept_, Chunk::features_;

 public:
  RecurrentBackward(const RecurrentHeadParams& p, void* scratch) : Chunk(p, scratch, /*backward=*/true) {}

  // RecurrentKernels::backward
  void run(int64_t begin, int64_t end, const float* checkpoints, float* ds) {
    const int64_t size = state_size(p_);
    for (int64_t part = (end - begin + kCheckpoint - 1) / kCheckpoint; part-- > 0;) {
      const int64_t first = begin + part * kCheckpoint;
      const int64_t last = end - first < kCheckpoint ? end : first + kCheckpoint;
      const int64_t chunks = (last - first + kChunkRows - 1) / kChunkRows;
      compute_states(first, chunks, checkpoints + part * size);
      for (int64_t chunk = chunks; chunk-- > 0;) {
        const int64_t position = first + chunk * kChunkRows;
        run_chunk(position, last - position < kChunkRows ? last - position : int64_t{kChunkRows}, b_.states + chunk * size, ds);
      }
    }
  }

 private:
  // Sets `states` to the state before each of `chunks` chunks, of which the first begins at `first`. The chunks that are
  // processed for this are whole, since only the last chunk of a sequence may have fewer positions.
  void compute_states(int64_t first, int64_t chunks, const float* checkpoint) {
    const int64_t size = state_size(p_);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      float* state = b_.states + chunk * size;
      if (chunk == 0) {
        for (int64_t i = 0; i < size; i += V::kLanes) V::store(state + i, V::load(checkpoint + i));
        continue;
      }
      const float* before = state - size;
      Chunk::load(first + (chunk - 1) * kChunkRows, kChunkRows, /*with_queries=*/false);
      Chunk::compute_updates(before);
      Chunk::update(before, state);
    }
  }

  void run_chunk(int64_t first, int64_t count, const float* s, float* ds) {
    Chunk::load(first, count, /*with_queries=*/true);
    load_gradients(first, count);
    Chunk::compute_updates(s);
    Chunk::score_queries();
    differentiate_updates(ds);
    transpose_values(b_.grad_output);
    scores_of<V, Triangle::lower>(b_.left_v, b_.u, b_.values, b_.values, b_.grad_qk);
    times_state(s, Moment::read, b_.grad_q);
    if constexpr (kDelta) {
      transpose_values(b_.grad_target);
      scores_of<V, Triangle::lower>(b_.left_v, b_.u, b_.values, b_.values, b_.grad_kk);
      times_state(s, Moment::read, b_.grad_k);
    }
    transpose_values(b_.u);
    times_state(ds, Moment::written, kFeatures ? b_.grad_stored : b_.grad_written);
    differentiate_pairs();
    if constexpr (kDelta) {
      if (p_.beta) write_grad_beta(first, count);
      float factors[kChunkRows];
      for (int i = 0; i < kChunkRows; ++i) factors[i] = -b_.beta[i];
      Chunk::scale_rows(b_.grad_k, b_.keys, factors);
    }
    // The gradient of the last sum of g through the state after the chunk.
    float through_state = 0;
    if (p_.g && !kFeatures) {
      through_state = kept_ * dot<V>(s, ds, state_size(p_));
      for (int64_t i = 0; i < kChunkRows; ++i) through_state += dot_of(b_.k, b_.grad_written, i);
    }
    add_pairs();
    if constexpr (kFeatures) {
      write_feature_grad_g(first, count, s, ds);
      add_rows(b_.grad_stored, b_.grad_written);
      add_pairs_with_themselves();
    } else if (p_.g) {
      write_grad_g(first, count, through_state);
    }
    write_grad_values(first, count);
    if constexpr (kDelta) add_rows(b_.grad_k, b_.grad_written);
    write_gradient(p_.grad_q, first, count, b_.q, b_.inverse_q, b_.grad_q);
    write_gradient(p_.grad_k, first, count, b_.k, b_.inverse_k, b_.grad_written);
    update_grad_state(ds);
  }

  void load_gradients(int64_t first, int64_t count) {
    const auto scale = V::all(float(p_.scale));
    load_changed_rows<V, E>(
        p_.grad_output, first, count, p_.value_dim, b_.grad_output, b_.values, -2 * kChunkRows,
        kChunkRows, [&](int64_t, int64_t, typename V::F x) __attribute__((always_inline)) { return V::mul(x, scale); });
  }

  // Sets grad_target, which is the gradient of u and, with the delta rule, then solves the transposed system.
  void differentiate_updates(const float* ds) {
    float* pairs = b_.grad_qk;  // the number of query i and key j is at [i][j], since keys are the lanes of left_k
    transpose<V>(b_.pairs_qk, kChunkRows, kChunkRows, kChunkRows, pairs, kChunkRows);
    if constexpr (kFeatures) {
      transpose<V>(b_.written_k, b_.keys, kChunkRows, b_.keys, b_.left_read, kChunkRows);
      features_.multiply_columns_by_edge(b_.left_read, b_.left_read);
    } else {
      Chunk::scaled_columns(b_.left_k, b_.e_rest, b_.left_read);
    }
    read_rows<V, Triangle::upper>({b_.left_read, ds, b_.keys, b_.values, pairs, b_.grad_output, b_.values, b_.products},
                                  {b_.grad_target, b_.values});
    if constexpr (kDelta) solve_rows<V, SolveOrder::backwards>(b_.factors, b_.grad_target, b_.values);
  }

  // On entry grad_qk holds o_i·u_j and grad_kk holds ∂w_i·u_j, at [j][i]. Sets grad_qk to ∂N_ij e_ij for j ≤ i and grad_kk to
  // β_i ∂A_ij e_ij for j < i, and other pairs to zero. With kFeatures both lack e_ij, because it is a vector, and the numbers of
  // pairs of a position with itself go to grad_itself.
  void differentiate_pairs() {
    for (int i = 0; kFeatures && i < kChunkRows; ++i) b_.grad_itself[i] = b_.grad_qk[i * kChunkRows + i];
    for (int j = 0; j < kChunkRows; ++j)
      for (int c = 0; c < kChunkRows; c += V::kLanes) {
        const int64_t at = j * kChunkRows + c;
        const bool counts = c + V::kLanes > j;
        const auto lanes_from = [&](int64_t lane) { return V::from(lane < 0 ? 0 : lane > V::kLanes ? V::kLanes : lane); };
        const auto decays = !counts ? V::zero() : kFeatures ? V::all(1) : V::load(b_.decays + at);
        V::store(b_.grad_qk + at, V::keep(V::mul(V::load(b_.grad_qk + at), decays), lanes_from(kFeatures ? j - c + 1 : j - c)));
        if constexpr (kDelta) {
          // write_grad_beta() needs −∂A_ij e_ij (k_i·k_j), since grad_kk is overwritten.
          const auto plain = V::keep(V::mul(V::load(b_.grad_kk + at), V::sub(V::zero(), decays)), lanes_from(j - c + 1));
          V::store(b_.factors + at, counts ? V::mul(V::load(b_.grad_kk + at), V::load(b_.pairs_kk + at)) : V::zero());
          V::store(b_.grad_kk + at, V::mul(plain, V::load(b_.beta + c)));
        }
      }
  }

  // Whether the state is read at a position, or written.
  enum class Moment { read, written };

  // Sets left_v to rows of v or of its gradients.
  void transpose_values(const float* x) { transpose<V>(x, b_.values, kChunkRows, b_.values, b_.left_v, kChunkRows); }

  // to[i][d] = e · Σ_m left_v[m][i] · state[d][m], with the decay e from the beginning of the chunk to i (read), or from i to its
  // end (written).
  void times_state(const float* state, Moment moment, float* to) {
    scores_of_rows<V>(b_.left_v, state, b_.values, b_.keys, b_.values, b_.products);
    transpose<V>(b_.products, kChunkRows, b_.keys, kChunkRows, to, b_.keys);
    if constexpr (kFeatures) features_.decay(to, moment == Moment::read ? b_.e_read : b_.e_written);
    else Chunk::scale_rows(to, b_.keys, moment == Moment::read ? b_.e : b_.e_rest);
  }

  // ∂β_i = ∂w_i·(v_i − e_i S₀ᵀk_i) + Σ_(j<i) ∂A_ij e_ij (k_i·k_j). The rows of grad_k are e_i S₀∂w_i, and differentiate_pairs()
  // has left −∂A_ij e_ij (k_i·k_j) in `factors`.
  void write_grad_beta(int64_t first, int64_t count) {
    auto* to = static_cast<float*>(p_.grad_beta) + first;
    for (int64_t i = 0; i < count; ++i) {
      float sum = dot<V>(b_.grad_target + i * b_.values, b_.v + i * b_.values, b_.values) - dot_of(b_.k, b_.grad_k, i);
      for (int64_t j = 0; j < i; ++j) sum -= b_.factors[j * kChunkRows + i];
      to[i] = sum;
    }
  }

  // Adds the contributions of pairs to the gradients of q and k. With kFeatures, grad_written is set to them instead.
  void add_pairs() {
    if constexpr (kFeatures) return add_feature_pairs();
    add_triangular_product<V, Triangle::lower>(b_.grad_qk, 1, kChunkRows, b_.k, b_.keys, b_.grad_q);
    add_triangular_product<V, Triangle::upper>(b_.grad_qk, kChunkRows, 1, b_.q, b_.keys, b_.grad_written);
    if constexpr (kDelta) {
      add_triangular_product<V, Triangle::lower>(b_.grad_kk, 1, kChunkRows, b_.k, b_.keys, b_.grad_k);
      add_triangular_product<V, Triangle::upper>(b_.grad_kk, kChunkRows, 1, b_.k, b_.keys, b_.grad_written);
    }
  }

  void add_feature_pairs() {
    const float* const of_keys = kDelta ? b_.grad_kk : nullptr;
    if (!features_.moderate()) {
      features_.read_one_by_one(b_.grad_qk, b_.grad_q, of_keys, b_.grad_k);
      return features_.write_one_by_one(b_.grad_qk, of_keys, b_.grad_written);
    }
    const auto keys = b_.keys;
    product<V, false>(b_.grad_qk, 1, kChunkRows, b_.written_k, keys, kChunkRows, kChunkRows, keys, b_.products, keys);
    add_multiplied(b_.products, b_.e_read, b_.grad_q);
    product<V, false>(b_.grad_qk, kChunkRows, 1, b_.read_q, keys, kChunkRows, kChunkRows, keys, b_.products, keys);
    if constexpr (kDelta)
      product<V, true>(b_.grad_kk, kChunkRows, 1, b_.read_k, keys, kChunkRows, kChunkRows, keys, b_.products, keys);
    features_.multiply(b_.products, b_.e_written, b_.grad_written);
    if constexpr (kDelta) {
      product<V, false>(b_.grad_kk, 1, kChunkRows, b_.written_k, keys, kChunkRows, kChunkRows, keys, b_.products, keys);
      add_multiplied(b_.products, b_.e_read, b_.grad_k);
    }
  }

  void add_pairs_with_themselves() {
    for (int64_t i = 0; i < kChunkRows; ++i) {
      add_row<V>(b_.k + i * b_.keys, b_.keys, b_.grad_itself[i], b_.grad_q + i * b_.keys);
      add_row<V>(b_.q + i * b_.keys, b_.keys, b_.grad_itself[i], b_.grad_written + i * b_.keys);
    }
  }

  // to[i] += x[i] · factors[i], elementwise.
  void add_multiplied(const float* x, const float* factors, float* to) const {
    for (int64_t at = 0; at < kChunkRows * b_.keys; at += V::kLanes)
      V::store(to + at, V::fma(V::load(x + at), V::load(factors + at), V::load(to + at)));
  }

  // As write_grad_g(), for a vector of features at a time. Terms that cancel are left out as far as possible, because the
  // gradient of a strong decay is much smaller than they are. g_i multiplies what positions l < i add to the state after the
  // chunk, and the scores of pairs of positions that have i between them; the terms of other pairs cancel. The gradients do not
  // contain pairs of a position with itself yet, which have no decay.
  void write_feature_grad_g(int64_t first, int64_t count, const float* s, const float* ds) {
    for (int64_t d = 0; d < b_.keys; ++d)
      b_.grad_kept[d] = b_.e_kept[d] * dot<V>(s + d * b_.values, ds + d * b_.values, b_.values);
    const RowStore<V, float> to({p_.grad_g, p_.grad_g_stride}, first, count, p_.key_dim, -2 * kChunkRows);
    for (int64_t c = 0; c < b_.keys; c += V::kLanes) {
      typename V::F through_state[kChunkRows];
      auto sum = V::load(b_.grad_kept + c);
      for (int64_t i = 0, at = c; i < kChunkRows; ++i, at += b_.keys) {
        through_state[i] = sum;
        sum = V::fma(V::load(b_.k + at), V::load(b_.grad_stored + at), sum);
      }
      sum = V::zero();
      for (int64_t i = kChunkRows; i-- > 0;) {
        const int64_t at = i * b_.keys + c;
        auto written = V::load(b_.grad_written + at);
        if constexpr (kDelta) written = V::sub(written, V::load(b_.grad_k + at));
        sum = V::fma(V::load(b_.q + at), V::load(b_.grad_q + at), sum);
        sum = V::sub(sum, V::mul(V::load(b_.k + at), written));
        sum = features_.zero_if_cleared(i, c, sum);
        to(i, c, features_.zero_if_cleared(i, c, V::add(sum, through_state[i])));
      }
    }
  }

  void write_grad_g(int64_t first, int64_t count, float through_state) {
    auto* to = static_cast<float*>(p_.grad_g) + first;
    float sum = through_state;
    for (int64_t i = kChunkRows; i-- > 0;) {
      sum += dot_of(b_.q, b_.grad_q, i) - dot_of(b_.k, b_.grad_written, i);
      if constexpr (kDelta) sum += dot_of(b_.k, b_.grad_k, i);
      const bool border = b_.g[i] < Chunk::kBorder;
      if (i < count) to[i] = border ? 0 : sum;
      if (border) sum = 0;
    }
  }

  void write_grad_values(int64_t first, int64_t count) {
    const RowStore<V, E> to(p_.grad_v, first, count, p_.value_dim, -2 * kChunkRows);
    for (int64_t i = 0; i < count; ++i)
      for (int64_t c = 0; c < p_.value_dim; c += V::kLanes) {
        const auto x = V::load(b_.grad_target + i * b_.values + c);
        to(i, c, kDelta ? V::mul(V::all(b_.beta[i]), x) : x);
      }
  }

  // Writes the gradient of rows of q or k, from `gradient`, which is that of the rows x that were used. If these are normalized,
  // they are the rows multiplied by `inverse`, and the gradient of the rows is inverse · (gradient − x (x·gradient)).
  void write_gradient(const Rows& rows, int64_t first, int64_t count, const float* x, const float* inverse,
                      const float* gradient) {
    for (int64_t i = 0; p_.normalizes && i < count; ++i) {
      float* row = const_cast<float*>(gradient) + i * b_.keys;
      add_row<V>(x + i * b_.keys, b_.keys, -dot<V>(x + i * b_.keys, row, b_.keys), row);
      scale_row<V>(row, b_.keys, inverse[i]);
    }
    if (!p_.shares_keys) {
      const RowStore<V, E> to(rows, first, count, p_.key_dim, -2 * kChunkRows);
      return to.store_rows(gradient, b_.keys, count);
    }
    const RowStore<V, float> to(rows, first, count, p_.key_dim, -2 * kChunkRows);
    for (int64_t i = 0; i < count; ++i)
      for (int64_t c = 0; c < p_.key_dim; c += V::kLanes) {
        auto sum = V::load(gradient + i * b_.keys + c);
        const float* before = to.to + i * to.stride + c;
        const int64_t rest = p_.key_dim - c;
        if (p_.adds_gradients) sum = V::add(sum, rest >= V::kLanes ? V::load(before) : V::load(before, V::first(rest)));
        to(i, c, sum);
      }
  }

  // Computes ∂S₀ from ∂S₁, in place. Overwrites the rows of q and k.
  void update_grad_state(float* ds) {
    if constexpr (kFeatures) {
      features_.multiply_by_edge(b_.read_q);
      update_state<V, const float*>(b_.read_q, b_.keys, b_.grad_output, b_.values, b_.e_kept, ds, ds);
      if constexpr (kDelta) {
        features_.multiply_by_edge(b_.read_k);
        Chunk::scale_rows(b_.read_k, b_.keys, b_.read_factors);
        add_products_of_chunk<V>(b_.read_k, b_.keys, b_.grad_target, b_.values, b_.keys, b_.values, ds);
      }
      return;
    }
    Chunk::scale_rows(b_.q, b_.keys, b_.e);
    update_state<V>(b_.q, b_.keys, b_.grad_output, b_.values, kept_, ds, ds);
    if constexpr (kDelta) {
      Chunk::scale_rows(b_.k, b_.keys, b_.read_factors);
      add_products_of_chunk<V>(b_.k, b_.keys, b_.grad_target, b_.values, b_.keys, b_.values, ds);
    }
  }

  float dot_of(const float* a, const float* b, int64_t row) const {
    return dot<V>(a + row * b_.keys, b + row * b_.keys, b_.keys);
  }
  void add_rows(const float* x, float* to) const {
    for (int64_t i = 0; i < kChunkRows * b_.keys; i += V::kLanes) V::store(to + i, V::add(V::load(to + i), V::load(x + i)));
  }
};

}  // namespace
}  // namespace attn::cpu
