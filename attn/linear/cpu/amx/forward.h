// The forward pass of linear attention in bfloat16 with AMX, causal or not. It computes what forward.h does, in chunks of 32
// positions.
#pragma once

#include "attn/linear/cpu/amx/chunk.h"

namespace attn::cpu {
namespace {

template <class Tiles, class Map>
class AmxForward {
  using V = Avx512;

 public:
  AmxForward(const LinearHeadParams& params, void* memory) : chunk_(params, memory) {}

  // The causal pass: each query sees the keys in S and Z and those of the range up to its own position. Adds the keys to S and Z.
  void forward(int64_t begin, int64_t end, float* s, float* z) {
    set_ones();
    chunk_.for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
      chunk_.load_values(first, count);
      if (!chunk_.all_finite(b_.values)) {  // Kernels that leave out pairs with the weight zero process this chunk.
        chunk_.vector_kernels().forward(p_, first, first + count, s, z, chunk_.memory);
        set_ones();
        return;
      }
      chunk_.load_queries(first, count);
      chunk_.load_keys(first, count);
      set_factors_of_state(s, z);
      chunk_.set_transposed_pairs(b_.kappa), chunk_.set_transposed(b_.kappa), chunk_.set_pairs(b_.values);
      chunk_.template set_scores<Triangle::lower>(b_.phi, b_.kappa);
      chunk_.template set_weights<Triangle::lower>();
      write_outputs(first, count, /*causal=*/true);
      add_keys_to(s, z);
    });
  }

  // Adds the keys of the range to S and Z.
  void add_keys(int64_t begin, int64_t end, float* s, float* z) {
    chunk_.for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
      chunk_.load_keys(first, count);
      chunk_.load_values(first, count);
      chunk_.set_transposed_pairs(b_.kappa), chunk_.set_transposed(b_.kappa), chunk_.set_pairs(b_.values);
      add_keys_to(s, z);
    });
  }

  // Each query sees all keys in S and Z.
  void read(int64_t begin, int64_t end, const float* s, const float* z) {
    set_factors_of_state(s, z);
    chunk_.for_each_chunk(begin, end, [&](int64_t first, int64_t count) {
      chunk_.load_queries(first, count);
      write_outputs(first, count, /*causal=*/false);
    });
  }

 private:
  void set_ones() {
    const auto ones = _mm512_maskz_set1_epi32(1, 0x3f803f80);
    for (int p = 0; p < 16; ++p) chunk_.store(b_.one_pairs + p * 32, ones);
  }

  void add_keys_to(float* s, float* z) {
    chunk_.add_to_state(s, b_.kappa, padded(p_.feature_count), b_.values, padded(p_.value_dim));
    chunk_.add_rows(b_.kappa, nullptr, padded(p_.feature_count), z);
  }

  // Rounds S and Z to bfloat16. The rounding error of Z becomes a second column, so that normalizers do not lose digits.
  void set_factors_of_state(const float* s, const float* z) {
    chunk_.set_state_pairs(s, p_.feature_count, p_.value_dim);
    for (int64_t f = 0; f < b_.phi.width; f += 16) {
      const auto all = f < padded(p_.feature_count) ? V::load(z + f) : V::zero();
      BFloat16 rounded[16], rest[16];
      V::store(rounded, all);
      V::store(rest, V::sub(all, V::load(rounded)));
      for (int i = 0; i < 16; i += 2) {
        BFloat16* to = b_.vector_pairs + (f + i) * 16;
        chunk_.store(to, _mm512_setzero_si512());
        to[0] = rounded[i];
        to[1] = rounded[i + 1];
        to[2] = rest[i];
        to[3] = rest[i + 1];
      }
    }
  }

  void write_outputs(int64_t first, int64_t count, bool causal) {
    const int64_t depth = b_.phi.width, width = b_.values.width;
    chunk_.multiply(b_.phi.rows, depth, b_.vector_pairs, causal ? b_.one_pairs : nullptr, 16, b_.normalizer);
    chunk_.multiply(b_.phi.rows, depth, b_.state_pairs, causal ? b_.values.pairs : nullptr, width, b_.output);
    float* normalizer = static_cast<float*>(p_.normalizer) + first;
    for (int64_t i = 0; i < count; ++i) {
      normalizer[i] = b_.normalizer[i * 16] + b_.normalizer[i * 16 + 1] + float(p_.epsilon);
      const auto factor = V::all(1 / normalizer[i]);
      prefetch_row<1>(chunk_.row_of(p_.output, first + i + chunk_.ahead), p_.value_dim);
      for (int64_t c = 0; c < p_.value_dim; c += V::kLanes)
        chunk_.write(p_.output, first + i, c, p_.value_dim, V::mul(V::load(b_.output + i * width + c), factor));
    }
  }

  AmxChunk<Tiles, Map> chunk_;
  const LinearHeadParams& p_ = chunk_.params;
  AmxScratch& b_ = chunk_.buffers;
};

}  // namespace
}  // namespace attn::cpu
