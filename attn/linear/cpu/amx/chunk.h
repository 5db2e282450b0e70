// AmxChunk: a chunk of 32 positions of linear attention in bfloat16, and its products with AMX, for entrywise feature maps.
//
// AMX multiplies bfloat16 numbers and accumulates in float32. So features, values, gradients and scores are rounded to bfloat16,
// and so is a copy of a state that is a factor of a product; the state itself stays in float32. A product C = A B needs A row by
// row, and B in pairs of rows: B[2p][n] and B[2p+1][n] are neighbours (amx_tiles.h). Widths are rounded up to 32, with zeros as
// padding.
#pragma once

#include "attn/cpu/amx_tiles.h"
#include "attn/linear/cpu/vectors/features.h"
#include "attn/linear/cpu/vectors/scales.h"

namespace attn::cpu {
namespace {

// The vectors of AVX-512 with a shorter exp, for features that are rounded to bfloat16: its relative error is 1e-4, a twentieth
// of that of the rounding, and exp(0) is 1.
struct Avx512ForBFloat16 : Avx512 {
  static F exp_nonpositive(F x) {
    x = max(all(kMinExp), x);
    const F n = sub(fma(x, all(kLog2E), all(kRounder)), all(kRounder));
    const F f = _mm512_fnmadd_ps(n, all(kLn2High + kLn2Low), x);
    const F p = fma(fma(all(0.16517975f), f, all(0.50413038f)), f, all(1.00019584f));
    return _mm512_scalef_ps(fma(p, f, all(1)), n);
  }
};

constexpr int64_t kAmxChunk = 32;
constexpr int64_t rounded_up(int64_t n) { return (n + 31) / 32 * 32; }

// 32 rows of `width` numbers in the layouts that products need.
struct AmxRows {
  int64_t width;
  BFloat16* rows;              // [32][width]
  BFloat16* pairs;             // [16][width][2]: in pairs of rows
  BFloat16* transposed;        // [width][32]
  BFloat16* transposed_pairs;  // [width/2][32][2]: the transposed rows, in pairs
};

// The buffers of a chunk.
struct AmxScratch {
  AmxRows phi, kappa, values, gradients;  // φ(q), φ(k), v and g′
  BFloat16* state_pairs;                  // a state in pairs of rows
  BFloat16* state_rows;                   // a state row by row
  BFloat16* transposed_state_pairs;       // the transposed state, in pairs of rows
  BFloat16* vector_pairs;                 // [features/2][16][2]: column 0 is Z rounded, and column 1 its rounding error
  BFloat16* one_pairs;                    // [16][16][2]: column 0 is ones, the others are zeros
  BFloat16* weights;                      // [32][32]: the scores of pairs that see each other, and zeros
  float* scores;                          // [32][32]
  float* output;                          // [32][width of φ or v]
  float* normalizer;                      // [32][16]: columns 0 and 1 add up to the normalizers without ε
  float* inverse;                         // [32]: 1/normalizer
  float* delta;                           // [32]: δ
  float* shifted;                         // [32]: the product of g′ and the value shift

  AmxScratch(const LinearHeadParams& p, ScratchCutter& cut) {
    const int64_t features = rounded_up(p.feature_count), width = rounded_up(p.value_dim);
    const auto take = [&](int64_t size) { return reinterpret_cast<BFloat16*>(cut.take(size / 2)); };
    const auto take_rows = [&](int64_t w) {
      const auto size = kAmxChunk * w;
      return AmxRows{w, take(size), take(size), take(size), take(size)};
    };
    phi = take_rows(features);
    kappa = take_rows(features);
    values = take_rows(width);
    gradients = take_rows(width);
    state_pairs = take(features * width);
    state_rows = take(features * width);
    transposed_state_pairs = take(features * width);
    vector_pairs = take(features * 16);
    one_pairs = take(kAmxChunk * 16);
    weights = take(kAmxChunk * kAmxChunk);
    scores = cut.take(kAmxChunk * kAmxChunk);
    output = cut.take(kAmxChunk * (features > width ? features : width));
    normalizer = cut.take(kAmxChunk * 16);
    inverse = cut.take(kAmxChunk);
    delta = cut.take(kAmxChunk);
    shifted = cut.take(kAmxChunk);
  }

  // How many float32 numbers the buffers take.
  static int64_t size(const LinearHeadParams& p) {
    ScratchCutter cut;
    const AmxScratch counted(p, cut);
    return cut.taken();
  }
};

template <class Tiles, class Map>
class AmxChunk {
 public:
  using V = Avx512;

  // `scratch` has room for AmxScratch::size() numbers.
  AmxChunk(const LinearHeadParams& head, void* scratch) : AmxChunk(head, scratch, ScratchCutter(scratch)) { Tiles::begin(); }
  ~AmxChunk() { Tiles::end(); }
  AmxChunk(const AmxChunk&) = delete;
  AmxChunk& operator=(const AmxChunk&) = delete;

  // The kernels for AVX-512, which process the chunks that AMX cannot process.
  static const LinearKernels& vector_kernels() { return *linear_kernels_avx512(ElementType::bfloat16); }

  template <class Work>
  static void for_each_chunk(int64_t begin, int64_t end, const Work& work) {
    for (int64_t first = begin; first < end; first += kAmxChunk) work(first, end - first < kAmxChunk ? end - first : kAmxChunk);
  }

  // The bfloat16 numbers of two vectors.
  static __m512i join(V::F low, V::F high) { return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)); }
  static __m256i narrow(V::F x) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)); }
  static void store(BFloat16* to, __m512i x) { _mm512_storeu_si512(to, x); }
  static __m512i load(const BFloat16* from) { return _mm512_loadu_si512(from); }

  // The entries of a row of a tensor from column c on, for a row of `dim` columns.
  static V::F entries(const BFloat16* row, int64_t c, int64_t dim) { return V::load(row + c, lanes_before<V>(dim, c)); }
  static const BFloat16* row_of(const Rows& rows, int64_t i) { return static_cast<const BFloat16*>(rows.data) + i * rows.stride; }
  // Stores x in the columns from c on of a row of `dim` columns of a tensor.
  static void write(const Rows& rows, int64_t i, int64_t c, int64_t dim, V::F x) {
    _mm256_mask_storeu_epi16(static_cast<BFloat16*>(rows.data) + i * rows.stride + c, lanes_before<V>(dim, c), narrow(x));
  }

  // ---------------------------------------------------------- loads

  // Sets to[i] to the numbers number(i, c, mask) of row i, for i < count, where c is a column and `mask` selects the lanes that
  // exist. The other rows and columns become zeros.
  template <class Number>
  void fill_rows(BFloat16* to, int64_t count, int64_t dim, int64_t width, const Number& number) {
    for (int64_t c = 0; c < width; c += 2 * V::kLanes) {
      const auto low = lanes_before<V>(dim, c), high = lanes_before<V>(dim, c + V::kLanes);
      for (int64_t i = 0; i < count; ++i)
        store(to + i * width + c, join(V::keep(number(i, c, low), low), V::keep(number(i, c + V::kLanes, high), high)));
      for (int64_t i = count; i < kAmxChunk; ++i) store(to + i * width + c, _mm512_setzero_si512());
    }
  }

  void load_features(const Rows& rows, int64_t first, int64_t count, AmxRows& to) {
    const BFloat16* from = row_of(rows, first);
    for (int64_t i = 0; i < count; ++i) prefetch_row<0>(from + (i + ahead) * rows.stride, params.head_dim);
    fill_rows(
        to.rows, count, params.feature_count, to.width, [&](int64_t i, int64_t c, V::Mask mask) __attribute__((always_inline)) {
          return Map::apply(V::load(from + i * rows.stride + c, mask));
        });
  }
  void load_queries(int64_t first, int64_t count) { load_features(params.q, first, count, buffers.phi); }
  // The features of hidden keys become zeros, as do their values in load_values().
  void load_keys(int64_t first, int64_t count) {
    load_features(params.k, first, count_before(params.visible_keys, first, count), buffers.kappa);
  }
  void load_values(int64_t first, int64_t count) {
    const auto visible = count_before(params.visible_keys, first, count);
    const BFloat16* from = row_of(params.v, first);
    const auto* shift = static_cast<const float*>(params.value_shift);
    for (int64_t i = 0; i < visible; ++i) prefetch_row<0>(from + (i + ahead) * params.v.stride, params.value_dim);
    fill_rows(
        buffers.values.rows, visible, params.value_dim,
        buffers.values.width, [&](int64_t i, int64_t c, V::Mask mask) __attribute__((always_inline)) {
          const auto x = V::load(from + i * params.v.stride + c, mask);
          return shift && c < padded(params.value_dim) ? V::sub(x, V::load(shift + c)) : x;
        });
  }
  // Loads g′, 1/normalizer, and the product of g′ and the value shift.
  void load_gradients(int64_t first, int64_t count) {
    const float* normalizer = static_cast<const float*>(params.normalizer) + first;
    const auto* shift = static_cast<const float*>(params.value_shift);
    const BFloat16* from = row_of(params.grad_output, first);
    const int64_t dim = params.value_dim;
    for (int64_t i = 0; i < kAmxChunk; ++i) {
      buffers.inverse[i] = i < count ? 1 / normalizer[i] : 0;
      buffers.shifted[i] = 0;
      if (i >= count) continue;
      const BFloat16* row = from + i * params.grad_output.stride;
      prefetch_row<0>(row + ahead * params.grad_output.stride, dim);
      auto sum = V::zero();
      for (int64_t c = 0; shift && c < dim; c += V::kLanes) sum = V::fma(entries(row, c, dim), V::load(shift + c), sum);
      buffers.shifted[i] = V::sum(sum) * buffers.inverse[i];
    }
    fill_rows(
        buffers.gradients.rows, count, dim,
        buffers.gradients.width, [&](int64_t i, int64_t c, V::Mask mask) __attribute__((always_inline)) {
          return V::mul(V::load(from + i * params.grad_output.stride + c, mask), V::all(buffers.inverse[i]));
        });
  }
  void load_delta(int64_t first, int64_t count) {
    const float* delta = static_cast<const float*>(params.grad_normalizer) + first;
    for (int64_t i = 0; i < kAmxChunk; ++i) buffers.delta[i] = i < count ? delta[i] : 0;
  }

  // Whether all numbers of the rows are finite. A NaN or an infinity times a weight of zero would be NaN in rows that do not see
  // it.
  static bool all_finite(const AmxRows& x) {
    const auto exponent = _mm512_set1_epi16(0x7f80);
    __mmask32 not_finite = 0;
    for (int64_t i = 0; i < kAmxChunk * x.width; i += 32)
      not_finite |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(load(x.rows + i), exponent), exponent);
    return not_finite == 0;
  }

  // to[c] += Σ_i factors[i] · x.rows[i][c] for c < size, a multiple of 16; without factors they are ones.
  static void add_rows(const AmxRows& x, const float* factors, int64_t size, float* to) {
    for (int64_t c = 0; c < size; c += V::kLanes) {
      auto even = V::load(to + c), odd = V::zero();
      for (int64_t i = 0; i < kAmxChunk; i += 2) {
        const auto a = V::load(x.rows + i * x.width + c), b = V::load(x.rows + (i + 1) * x.width + c);
        even = factors ? V::fma(V::all(factors[i]), a, even) : V::add(even, a);
        odd = factors ? V::fma(V::all(factors[i + 1]), b, odd) : V::add(odd, b);
      }
      V::store(to + c, V::add(even, odd));
    }
  }

  // ---------------------------------------------------------- layouts

  static void set_pairs(AmxRows& x) { pair_rows(x.rows, kAmxChunk, x.width, x.pairs); }
  static void pair_rows(const BFloat16* rows, int64_t count, int64_t width, BFloat16* pairs) {
    const auto low = _mm512_load_si512(kInterleaveLow.words), high = _mm512_load_si512(kInterleaveHigh.words);
    for (int64_t i = 0; i < count; i += 2)
      for (int64_t c = 0; c < width; c += 32) {
        const auto a = load(rows + i * width + c), b = load(rows + (i + 1) * width + c);
        BFloat16* to = pairs + i * width + 2 * c;
        store(to, _mm512_permutex2var_epi16(a, low, b));
        store(to + 32, _mm512_permutex2var_epi16(a, high, b));
      }
  }
  static void set_transposed_pairs(AmxRows& x) { transpose_pairs(x.rows, kAmxChunk, x.width, x.transposed_pairs); }
  // A pair of columns is moved as if it were a float32.
  static void transpose_pairs(const BFloat16* rows, int64_t count, int64_t width, BFloat16* to) {
    for (int64_t i = 0; i < count; i += 16)
      for (int64_t p = 0; p < width / 2; p += 16)
        V::transpose(reinterpret_cast<const float*>(rows) + i * (width / 2) + p, width / 2,
                     reinterpret_cast<float*>(to) + p * count + i, count);
  }
  // Needs transposed_pairs.
  static void set_transposed(AmxRows& x) {
    const auto even = _mm512_load_si512(kEven.words), odd = _mm512_load_si512(kOdd.words);
    for (int64_t p = 0; p < x.width / 2; ++p) {
      const BFloat16* from = x.transposed_pairs + p * 2 * kAmxChunk;
      const auto a = load(from), b = load(from + 32);
      store(x.transposed + 2 * p * kAmxChunk, _mm512_permutex2var_epi16(a, even, b));
      store(x.transposed + (2 * p + 1) * kAmxChunk, _mm512_permutex2var_epi16(a, odd, b));
    }
  }

  // Rounds a state [rows][columns], both padded to 16, to bfloat16 in buffers.state_pairs.
  void set_state_pairs(const float* state, int64_t rows, int64_t columns) {
    const auto interleave = _mm512_load_si512(kInterleaved.words);
    const int64_t width = rounded_up(columns);
    for (int64_t r = 0; r < rounded_up(rows); r += 2)
      for (int64_t c = 0; c < width; c += 16) {
        BFloat16* to = buffers.state_pairs + r * width + 2 * c;
        if (r >= padded(rows) || c >= padded(columns)) {
          store(to, _mm512_setzero_si512());
          continue;
        }
        const float* from = state + r * padded(columns) + c;
        store(to, _mm512_permutexvar_epi16(interleave, join(V::load(from), V::load(from + padded(columns)))));
      }
  }
  // The same for a state transposed, [columns][rows], in buffers.transposed_state_pairs.
  void set_transposed_state_pairs(const float* state, int64_t rows, int64_t columns) {
    const int64_t width = rounded_up(columns), height = rounded_up(rows);
    for (int64_t r = 0; r < height; ++r)
      for (int64_t c = 0; c < width; c += 32) {
        const float* from = state + r * padded(columns) + c;
        const bool row = r < padded(rows), second = c + 16 < padded(columns);
        store(buffers.state_rows + r * width + c,
              join(row ? V::load(from) : V::zero(), row && second ? V::load(from + 16) : V::zero()));
      }
    transpose_pairs(buffers.state_rows, height, width, buffers.transposed_state_pairs);
  }

  // ---------------------------------------------------------- products
  // Tiles: 0 to 3 are sums, 4 and 5 rows of the left factor, 6 and 7 columns of the right factor.

  // Sets buffers.scores[a][b] = left.rows[a] · right.rows[b], except for blocks of 16 × 16 outside the triangle: b ≤ a (lower) or
  // b ≥ a (upper). Needs right.transposed_pairs.
  template <Triangle kTriangle>
  void set_scores(const AmxRows& left, const AmxRows& right) {
    const int64_t stride = 2 * left.width;
    Tiles::template zero<0>(), Tiles::template zero<1>(), Tiles::template zero<2>();
    for (int64_t d = 0; d < left.width; d += 32) {
      Tiles::template load<4>(left.rows + d, stride);
      Tiles::template load<5>(left.rows + 16 * left.width + d, stride);
      Tiles::template load<6>(right.transposed_pairs + d * kAmxChunk, 4 * kAmxChunk);
      Tiles::template load<7>(right.transposed_pairs + d * kAmxChunk + 32, 4 * kAmxChunk);
      Tiles::template multiply_add<0, 4, 6>();
      if constexpr (kTriangle == Triangle::lower) Tiles::template multiply_add<1, 5, 6>();
      else Tiles::template multiply_add<1, 4, 7>();
      Tiles::template multiply_add<2, 5, 7>();
    }
    Tiles::template store<0>(buffers.scores, 4 * kAmxChunk);
    Tiles::template store<1>(buffers.scores + (kTriangle == Triangle::lower ? 16 * kAmxChunk : 16), 4 * kAmxChunk);
    Tiles::template store<2>(buffers.scores + 16 * kAmxChunk + 16, 4 * kAmxChunk);
  }

  // Rounds the scores of the triangle to bfloat16 in buffers.weights, where the others become zeros. If `added` is not null,
  // first adds added[b] to the scores of column b.
  template <Triangle kTriangle>
  void set_weights(const float* added = nullptr) {
    for (int64_t a = 0; a < kAmxChunk; ++a) {
      const float* row = buffers.scores + a * kAmxChunk;
      const auto half = [&](int64_t c) {
        const int64_t kept = kTriangle == Triangle::lower ? a - c + 1 : a - c, bound = kept < 0 ? 0 : kept > 16 ? 16 : kept;
        auto x = V::load(row + c);
        if (added) x = V::add(x, V::load(added + c));
        return V::keep(x, kTriangle == Triangle::lower ? V::first(bound) : V::from(bound));
      };
      store(buffers.weights + a * kAmxChunk, join(half(0), half(16)));
    }
  }

  // Sets to[32][width] = left · state + buffers.weights · rows; without the second product if `rows` is null. `left` has `depth`
  // columns, and both right factors are in pairs of rows.
  void multiply(const BFloat16* left, int64_t depth, const BFloat16* state, const BFloat16* rows, int64_t width, float* to) {
    int64_t c = 0;
    for (; c + 32 <= width; c += 32) multiply_columns<2>(left, depth, state, rows, width, c, to);
    if (c < width) multiply_columns<1>(left, depth, state, rows, width, c, to);
  }

  // state [height][width] += xᵀ · y, where both sizes are padded to 16. Needs x.transposed and y.pairs.
  static void add_to_state(float* state, const AmxRows& x, int64_t height, const AmxRows& y, int64_t width) {
    for (int64_t r = 0; r < height; r += 32)
      for (int64_t c = 0; c < width; c += 32) {
        if (r + 32 <= height && c + 32 <= width) add_block<2, 2>(state, x, r, y, width, c);
        else if (r + 32 <= height) add_block<2, 1>(state, x, r, y, width, c);
        else if (c + 32 <= width) add_block<1, 2>(state, x, r, y, width, c);
        else add_block<1, 1>(state, x, r, y, width, c);
      }
  }

  LinearHeadParams params;
  AmxScratch buffers;
  void* memory;
  int64_t ahead = 2 * kAmxChunk;  // how many positions ahead the kernels prefetch; negative in passes from the last to the first

 private:
  AmxChunk(const LinearHeadParams& head, void* scratch, ScratchCutter cut) : params(head), buffers(head, cut), memory(scratch) {}

  // Computes kBlocks blocks of 16 columns of multiply(), beginning with column c.
  template <int kBlocks>
  void multiply_columns(const BFloat16* left, int64_t depth, const BFloat16* state, const BFloat16* rows, int64_t width,
                        int64_t c, float* to) {
    Tiles::template zero<0>(), Tiles::template zero<1>();
    if constexpr (kBlocks == 2) Tiles::template zero<2>(), Tiles::template zero<3>();
    const auto add = [&](const BFloat16* a, int64_t a_width, const BFloat16* pairs) __attribute__((always_inline)) {
      const BFloat16* b = pairs + 2 * c;
      Tiles::template load<4>(a, 2 * a_width);
      Tiles::template load<6>(b, 4 * width);
      Tiles::template multiply_add<0, 4, 6>();
      if constexpr (kBlocks == 2) Tiles::template load<7>(b + 32, 4 * width);
      if constexpr (kBlocks == 2) Tiles::template multiply_add<2, 4, 7>();
      Tiles::template load<5>(a + 16 * a_width, 2 * a_width);
      Tiles::template multiply_add<1, 5, 6>();
      if constexpr (kBlocks == 2) Tiles::template multiply_add<3, 5, 7>();
    };
    for (int64_t d = 0; d < depth; d += 32) add(left + d, depth, state + d * width);
    if (rows) add(buffers.weights, kAmxChunk, rows);
    Tiles::template store<0>(to + c, 4 * width);
    Tiles::template store<1>(to + 16 * width + c, 4 * width);
    if constexpr (kBlocks == 2) {
      Tiles::template store<2>(to + c + 16, 4 * width);
      Tiles::template store<3>(to + 16 * width + c + 16, 4 * width);
    }
  }

  // Computes kRows times 16 rows from r on and kColumns times 16 columns from c on of add_to_state().
  template <int kRows, int kColumns>
  static void add_block(float* state, const AmxRows& x, int64_t r, const AmxRows& y, int64_t width, int64_t c) {
    const int64_t stride = 4 * width;
    float* const to = state + r * width + c;
    float* const below = to + 16 * width;
    Tiles::template load<0>(to, stride);
    if constexpr (kColumns == 2) Tiles::template load<1>(to + 16, stride);
    if constexpr (kRows == 2) Tiles::template load<2>(below, stride);
    if constexpr (kRows == 2 && kColumns == 2) Tiles::template load<3>(below + 16, stride);
    Tiles::template load<4>(x.transposed + r * kAmxChunk, 2 * kAmxChunk);
    Tiles::template load<6>(y.pairs + 2 * c, 4 * y.width);
    Tiles::template multiply_add<0, 4, 6>();
    if constexpr (kColumns == 2) {
      Tiles::template load<7>(y.pairs + 2 * c + 32, 4 * y.width);
      Tiles::template multiply_add<1, 4, 7>();
    }
    if constexpr (kRows == 2) {
      Tiles::template load<5>(x.transposed + (r + 16) * kAmxChunk, 2 * kAmxChunk);
      Tiles::template multiply_add<2, 5, 6>();
      if constexpr (kColumns == 2) Tiles::template multiply_add<3, 5, 7>();
    }
    Tiles::template store<0>(to, stride);
    if constexpr (kColumns == 2) Tiles::template store<1>(to + 16, stride);
    if constexpr (kRows == 2) Tiles::template store<2>(below, stride);
    if constexpr (kRows == 2 && kColumns == 2) Tiles::template store<3>(below + 16, stride);
  }

  struct alignas(64) Words {
    uint16_t words[32];
  };
  // The indices of words: word i of a result is word 2 i + first of a vector or, from 32 on, of a second vector.
  static constexpr Words every_second(uint16_t first) {
    Words w{};
    for (uint16_t i = 0; i < 32; ++i) w.words[i] = uint16_t(2 * i + first);
    return w;
  }
  // The indices of words: word i of a result is word first + i/2 of a vector and, for odd i, the word `distance` after it.
  static constexpr Words alternating(uint16_t first, uint16_t distance) {
    Words w{};
    for (uint16_t i = 0; i < 32; ++i) w.words[i] = uint16_t(first + i / 2 + i % 2 * distance);
    return w;
  }
  static constexpr Words kEven = every_second(0), kOdd = every_second(1), kInterleaved = alternating(0, 16),
                         kInterleaveLow = alternating(0, 32), kInterleaveHigh = alternating(16, 32);
};

}  // namespace
}  // namespace attn::cpu
