// The vector kernels of LSH attention; README.md says why they are shaped as they are. Compiled by lsh_avx512.cpp and
// lsh_avx2.cpp, each for its own vectors V.
#pragma once

#include <cmath>

#include "attn/lsh/cpu/kernels.h"
#include "attn/cpu/products.h"
#include "attn/cpu/simd.h"

namespace attn::kernels {
namespace {

constexpr int64_t kQueries = 64;  // queries at a time: as lanes of scores
constexpr float kHidden = -INFINITY;

// ------------------------------------------------------------ rows

// One row [padded dim] in float32, zeros behind; false, and all zeros, when an entry is not finite.
template <class V, class E>
inline bool load_row(const Rows& rows, int64_t position, int64_t dim, float* to) {
  const E* from = static_cast<const E*>(rows.data) + position * rows.stride;
  const int64_t width = padded(dim);
  auto check = V::zero();
  for (int64_t c = 0; c < width; c += V::kLanes) {
    const int64_t rest = dim - c;
    const auto x = rest >= V::kLanes ? V::load(from + c) : rest > 0 ? V::load(from + c, V::first(rest)) : V::zero();
    check = V::fma(x, V::zero(), check);
    V::store(to + c, x);
  }
  if (V::sum(check) == 0) return true;
  for (int64_t c = 0; c < width; c += V::kLanes) V::store(to + c, V::zero());
  return false;
}

template <class V, class E>
inline void store_row(const Rows& rows, int64_t position, int64_t dim, const float* from) {
  E* to = static_cast<E*>(rows.data) + position * rows.stride;
  int64_t c = 0;
  for (; c + V::kLanes <= dim; c += V::kLanes) V::store(to + c, V::load(from + c));
  if (c < dim) V::store(to + c, V::load(from + c), V::first(dim - c));
}

// What the key of x is x times of, without 1/√D.
template <class V>
inline float key_scale(const LshHead& h, const float* x) {
  const float squares = dot<V>(x, x, padded(h.dim));
  if (h.trax) return 1 / std::sqrt(squares / float(h.dim) + float(kMeanSquareEpsilon));
  return squares == 0 ? 0 : 1 / std::sqrt(squares);
}

// ------------------------------------------------------------ the kernels

template <class V, class E>
class Lsh {
 public:
  Lsh(const LshHead& head, void* memory)
      : h_(head),
        dim_(padded(head.dim)),
        values_(padded(head.value_dim)),
        chunk_(padded(head.chunk)),
        queries_(chunk_ < kQueries ? chunk_ : int64_t{kQueries}),
        root_(1 / std::sqrt(float(head.dim))) {
    next_ = static_cast<float*>(memory);
    x_ = take(kQueries * dim_), x_transposed_ = take(kQueries * dim_);
    keys_ = take(2 * chunk_ * dim_), v_ = take(2 * chunk_ * values_);
    weights_ = take(2 * chunk_ * kQueries), products_ = take(2 * chunk_ * kQueries);
    g_ = take(kQueries * values_), g_transposed_ = take(kQueries * values_);
    out_ = take(kQueries * (dim_ > values_ ? dim_ : values_));
    key_gradients_ = take(2 * chunk_ * dim_), value_gradients_ = take(2 * chunk_ * values_);
    largest_ = take(kQueries), sum_ = take(kQueries), factors_ = take(kQueries), deltas_ = take(kQueries);
    query_positions_ = reinterpret_cast<int32_t*>(take(kQueries));
    key_positions_ = reinterpret_cast<int32_t*>(take(2 * chunk_));
    key_bad_ = reinterpret_cast<int32_t*>(take(2 * chunk_));
    query_bad_ = reinterpret_cast<int32_t*>(take(kQueries));
  }
  static int64_t scratch_size(const LshHead& h) {
    const auto d = padded(h.dim), m = padded(h.value_dim), c = padded(h.chunk), wide = d > m ? d : m;
    return kQueries * (2 * d + 2 * m + wide + 6) + 2 * c * (2 * d + 2 * m + 2 * kQueries + 2);
  }

  // The float32 products decide where the two largest are further apart than rounding can have moved them, float64 elsewhere.
  void hash(int64_t begin, int64_t end, const LshRotations& rotations, int32_t* buckets) {
    const int64_t columns = rotations.first_half + rotations.second_half;
    const float rounding = 2 * rotations.longest * float(h_.dim + 4) * 6e-8f;
    for (int64_t at = begin; at < end; at += kQueries) {
      const int64_t count = end - at < kQueries ? end - at : kQueries;
      for (int64_t i = 0; i < kQueries; ++i) {
        float* x = x_ + i * dim_;
        query_bad_[i] = 0;
        if (i < count) query_bad_[i] = !load_row<V, E>(h_.qk, at + i, h_.dim, x);
        else zero_row(x, dim_);
        factors_[i] = std::sqrt(dot<V>(x, x, dim_)) * rounding;
      }
      transpose<V>(x_, dim_, kQueries, dim_, x_transposed_, kQueries);
      for (int64_t r = 0; r < h_.rounds; ++r) {
        for (int half = 0; half < (rotations.second_half > 0 ? 2 : 1); ++half) {
          const int64_t size = half == 0 ? rotations.first_half : rotations.second_half;
          const int64_t from = (r * columns + (half == 0 ? 0 : rotations.first_half)) * h_.dim;
          nearest(rotations.rounded + from, size);
          for (int64_t i = 0; i < count; ++i) {
            auto axis = int32_t(axes_[i]);
            if (query_bad_[i] || !(margins_[i] > factors_[i])) axis = exact_axis(at + i, rotations.exact + from, size);
            int32_t& bucket = buckets[r * h_.length + at + i];
            bucket = half == 0 ? axis : bucket + axis * int32_t(2 * rotations.first_half);
          }
        }
      }
    }
  }

  void forward(int64_t round, int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) {
      const int64_t chunk = round * h_.chunks + c;
      const int64_t rows = rows_ = load_keys(chunk);
      for (int64_t q = 0, size = size_of(chunk); q < size; q += queries_) {
        const int64_t count = size - q < queries_ ? size - q : queries_;
        load_queries(chunk, q, count);
        softmax(rows);
        product<V, false>(weights_, 1, queries_, v_, values_, queries_, rows, values_, out_, values_);
        for (int64_t i = 0; i < count; ++i) merge(round, i);
      }
    }
  }

  void backward(int64_t first, int64_t last, const LshGradients& to) {
    float *of_queries = static_cast<float*>(to.query), *of_keys = static_cast<float*>(to.key),
          *of_values = static_cast<float*>(to.value);
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const int64_t rows = load_keys(chunk), round = chunk / h_.chunks;
      zero_row(key_gradients_, rows * dim_);
      zero_row(value_gradients_, rows * values_);
      for (int64_t q = 0, size = size_of(chunk); q < size; q += queries_) {
        const int64_t count = size - q < queries_ ? size - q : queries_;
        load_queries(chunk, q, count);
        load_gradients(round, count);
        softmax(rows);
        product<V, false>(v_, values_, 1, g_transposed_, queries_, rows, h_.value_dim, queries_, products_, queries_);
        weigh(rows);
        product<V, true>(weights_, queries_, 1, g_, values_, rows, queries_, values_, value_gradients_, values_);
        differentiate(rows);
        product<V, true>(products_, queries_, 1, x_, dim_, rows, queries_, dim_, key_gradients_, dim_);
        product<V, false>(products_, 1, queries_, keys_, dim_, queries_, rows, dim_, out_, dim_);
        for (int64_t i = 0; i < count; ++i)
          add_row<V>(out_ + i * dim_, dim_, 1, of_queries + int64_t(query_positions_[i]) * dim_);
      }
      for (int64_t j = 0; j < rows; ++j) {
        if (key_positions_[j] < 0) continue;
        add_row<V>(key_gradients_ + j * dim_, dim_, 1, of_keys + int64_t(key_positions_[j]) * dim_);
        add_row<V>(value_gradients_ + j * values_, values_, 1, of_values + int64_t(key_positions_[j]) * values_);
      }
    }
  }

  static void store_sums(const LshHead& h, int64_t begin, int64_t end) {
    const auto width = padded(h.value_dim);
    for (int64_t i = begin; i < end; ++i) store_row<V, E>(h.output, i, h.value_dim, static_cast<float*>(h.sums) + i * width);
  }

  // x as a query, and through its key x · scale / √D, scale depending on x itself.
  static void store_gradients(const LshHead& h, int64_t begin, int64_t end, const LshGradients& from) {
    const auto dim = padded(h.dim), values = padded(h.value_dim);
    const float root = 1 / std::sqrt(float(h.dim));
    float buffer[kLongestRow];
    float* x = dim <= kLongestRow ? buffer : new float[size_t(dim)];
    for (int64_t i = begin; i < end; ++i) {
      float *of_query = static_cast<float*>(from.query) + i * dim, *of_key = static_cast<float*>(from.key) + i * dim;
      load_row<V, E>(h.qk, i, h.dim, x);
      const float scale = key_scale<V>(h, x);
      const float along = dot<V>(x, of_key, dim) * scale * scale * scale / (h.trax ? float(h.dim) : 1.0f);
      add_row<V>(of_key, dim, scale * root, of_query);
      add_row<V>(x, dim, -along * root, of_query);
      store_row<V, E>(h.qk_gradient, i, h.dim, of_query);
      store_row<V, E>(h.v_gradient, i, h.value_dim, static_cast<float*>(from.value) + i * values);
    }
    if (x != buffer) delete[] x;
  }

 private:
  static constexpr int64_t kLongestRow = 256;

  float* take(int64_t size) {
    float* result = next_;
    next_ += padded(size);
    return result;
  }

  static void zero_row(float* x, int64_t width) {
    for (int64_t c = 0; c < width; c += V::kLanes) V::store(x + c, V::zero());
  }

  int64_t size_of(int64_t chunk) const {
    const auto rest = h_.length - chunk % h_.chunks * h_.chunk;
    return rest < h_.chunk ? rest : h_.chunk;
  }
  const int64_t* positions_of(int64_t chunk) const {
    return h_.order + chunk / h_.chunks * h_.length + chunk % h_.chunks * h_.chunk;
  }

  // Keys and values of a chunk and of the one before; places without a visible key get position −1 and zeros. How many
  // rows there are, a multiple of 4.
  int64_t load_keys(int64_t chunk) {
    any_bad_ = false;
    int64_t row = 0;
    const int64_t sources[] = {chunk, chunk_before(h_, chunk)};
    for (const int64_t source : sources) {
      if (source < 0) continue;
      const int64_t* positions = positions_of(source);
      const int64_t count = size_of(source);
      for (int64_t i = 0; i < count; ++i) {
        if (positions[i] >= h_.visible_keys) continue;
        key_positions_[row] = int32_t(positions[i]);
        float* key = keys_ + row * dim_;
        const bool x_good = load_row<V, E>(h_.qk, positions[i], h_.dim, key),
                   v_good = load_row<V, E>(h_.v, positions[i], h_.value_dim, v_ + row * values_);
        scale_row<V>(key, dim_, key_scale<V>(h_, key) * root_);
        key_bad_[row] = !x_good || !v_good;
        any_bad_ = any_bad_ || key_bad_[row];
        ++row;
      }
    }
    for (; row % 4 != 0; ++row) {
      key_positions_[row] = -1, key_bad_[row] = 0;
      zero_row(keys_ + row * dim_, dim_);
      zero_row(v_ + row * values_, values_);
    }
    return row;
  }

  void load_queries(int64_t chunk, int64_t from, int64_t count) {
    const int64_t* positions = positions_of(chunk) + from;
    for (int64_t i = 0; i < queries_; ++i) {
      if (i < count) {
        query_positions_[i] = int32_t(positions[i]);
        query_bad_[i] = !load_row<V, E>(h_.qk, positions[i], h_.dim, x_ + i * dim_);
      } else {
        query_positions_[i] = -1, query_bad_[i] = 0;
        zero_row(x_ + i * dim_, dim_);
      }
    }
    transpose<V>(x_, dim_, queries_, dim_, x_transposed_, queries_);
  }

  // Lanes from c on that see key j.
  typename V::Mask sees(int64_t j, int64_t c) const {
    // Without the causal mask all see it; lanes without a query are at position −1 and do no harm.
    return V::at_least(query_positions_ + c, h_.causal ? key_positions_[j] : -1);
  }

  // weights_[j][i] = exp(logit − the query's largest), zero where the key is hidden; their sums, and the largest.
  void softmax(int64_t rows) {
    product<V, false>(keys_, dim_, 1, x_transposed_, queries_, rows, h_.dim, queries_, weights_, queries_);
    for (int64_t c = 0; c < queries_; c += V::kLanes) {
      auto largest = V::all(kHidden);
      for (int64_t j = 0; j < rows; ++j) {
        float* p = weights_ + j * queries_ + c;
        auto logit = V::load(p);
        if (key_positions_[j] < 0) {
          logit = V::all(kHidden);
        } else {
          if (h_.trax)
            logit = V::choose(V::equal(query_positions_ + c, key_positions_[j]),
                              V::sub(logit, V::all(float(kOwnPositionPenalty))), logit);
          if (h_.causal) logit = V::choose(sees(j, c), logit, V::all(kHidden));
        }
        V::store(p, logit);
        largest = V::max(largest, logit);
      }
      V::store(largest_ + c, largest);
      largest = V::max(V::all(-3e38f), largest);  // nothing seen: zeros, not NaN
      auto sum = V::zero();
      for (int64_t j = 0; j < rows; ++j) {
        float* p = weights_ + j * queries_ + c;
        const auto logit = V::load(p);
        const auto weight = V::keep(V::exp(V::sub(logit, largest)), V::greater(logit, V::all(kHidden)));
        V::store(p, weight);
        sum = V::add(sum, weight);
      }
      V::store(sum_ + c, sum);
    }
  }

  // Row i of out_ into what the rounds have so far.
  void merge(int64_t round, int64_t i) {
    const int64_t position = query_positions_[i];
    const bool seen = largest_[i] > kHidden;
    double total = seen ? double(largest_[i]) + double(std::log(sum_[i])) : -INFINITY;
    if (reaches_bad(i, seen)) total = NAN;
    h_.log_sum_exp[round * h_.length + position] = total;
    float* row = out_ + i * values_;
    if (h_.rounds == 1) {
      scale_row<V>(row, values_, std::isnan(total) ? NAN : seen ? 1 / sum_[i] : 0);
      store_row<V, E>(h_.output, position, h_.value_dim, row);
      return;
    }
    float* sums = static_cast<float*>(h_.sums) + position * values_;
    float kept = 1, share = std::isnan(total) ? NAN : seen ? 1 / (sum_[i] * float(h_.rounds)) : 0;
    if (h_.trax) {
      const auto joined = RoundShares::join(h_.merged + 2 * position, round == 0, total);
      kept = float(joined.kept);
      share = float(joined.share) / (seen ? sum_[i] : 1);
    }
    for (int64_t c = 0; c < values_; c += V::kLanes) {
      const auto old = round == 0 ? V::zero() : V::mul(V::load(sums + c), V::all(kept));
      V::store(sums + c, V::fma(V::load(row + c), V::all(share), old));
    }
  }

  // Whether query i is not a number, or sees one that is not.
  bool reaches_bad(int64_t i, bool seen) const {
    if (query_bad_[i] && seen) return true;
    if (!any_bad_) return false;
    for (int64_t j = 0; j < rows_; ++j)
      if (key_bad_[j] && (!h_.causal || key_positions_[j] <= query_positions_[i])) return true;
    return false;
  }

  void load_gradients(int64_t round, int64_t count) {
    for (int64_t i = 0; i < queries_; ++i) {
      const int64_t position = query_positions_[i];
      // What is not finite in a hidden position's query has spoilt its own row; no gradient comes from there.
      if (i < count && (!query_bad_[i] || position < h_.visible_keys)) {
        copy_row(h_.gradient, position, h_.value_dim, g_ + i * values_);
        factors_[i] = static_cast<const float*>(h_.shares)[round * h_.length + position];
        if (h_.trax) {
          // Σ w (g·v) over all rounds is what the gradient is to the output.
          copy_row(h_.output, position, h_.value_dim, out_);
          deltas_[i] = dot<V>(g_ + i * values_, out_, values_);
        } else {
          deltas_[i] = 0;
        }
      } else {
        zero_row(g_ + i * values_, values_);
        factors_[i] = deltas_[i] = 0;
      }
    }
    transpose<V>(g_, values_, queries_, values_, g_transposed_, queries_);
  }
  // As load_row, whatever the entries.
  static void copy_row(const Rows& rows, int64_t position, int64_t dim, float* to) {
    const E* from = static_cast<const E*>(rows.data) + position * rows.stride;
    for (int64_t c = 0, width = padded(dim); c < width; c += V::kLanes) {
      const int64_t rest = dim - c;
      V::store(to + c, rest >= V::kLanes ? V::load(from + c) : rest > 0 ? V::load(from + c, V::first(rest)) : V::zero());
    }
  }

  // Weights as shares of the output row.
  void weigh(int64_t rows) {
    for (int64_t i = 0; i < queries_; ++i) factors_[i] = sum_[i] > 0 ? factors_[i] / sum_[i] : 0;
    for (int64_t j = 0; j < rows; ++j)
      for (int64_t c = 0; c < queries_; c += V::kLanes) {
        float* p = weights_ + j * queries_ + c;
        V::store(p, key_positions_[j] < 0 ? V::zero() : V::keep(V::mul(V::load(p), V::load(factors_ + c)), sees(j, c)));
      }
  }

  // products_[j][i], g·v, become the gradients of the logits.
  void differentiate(int64_t rows) {
    for (int64_t c = 0; c < queries_; c += V::kLanes) {
      auto delta = V::load(deltas_ + c);
      if (!h_.trax) {
        // The weights of a round sum to 1/R.
        for (int64_t j = 0; j < rows; ++j)
          delta = V::fma(V::load(weights_ + j * queries_ + c), V::load(products_ + j * queries_ + c), delta);
        delta = V::mul(delta, V::all(float(h_.rounds)));
      }
      for (int64_t j = 0; j < rows; ++j) {
        float* p = products_ + j * queries_ + c;
        const auto g = V::mul(V::load(weights_ + j * queries_ + c), V::sub(V::load(p), delta));
        V::store(p, key_positions_[j] < 0 ? V::zero() : V::keep(g, sees(j, c)));
      }
    }
  }

  // For the lanes in x_transposed_: axes_, the first argmax of [y; −y], and margins_ to the second largest.
  void nearest(const float* rotations, int64_t columns) {
    constexpr int64_t kGroup = 16;
    float best[kQueries], second[kQueries];
    for (int64_t i = 0; i < kQueries; ++i) best[i] = second[i] = -1, axes_[i] = 0;
    for (int64_t c = 0; c < columns; c += kGroup) {
      const int64_t count = columns - c < kGroup ? columns - c : kGroup;
      product<V, false>(rotations + c * h_.dim, h_.dim, 1, x_transposed_, kQueries, (count + 3) / 4 * 4, h_.dim, kQueries,
                        weights_, kQueries);
      for (int64_t k = 0; k < count; ++k)
        for (int64_t i = 0; i < kQueries; i += V::kLanes) {
          const auto y = V::load(weights_ + k * kQueries + i), size = V::max(y, V::sub(V::zero(), y));
          const auto most = V::load(best + i);
          const auto axis = V::choose(V::greater(V::zero(), y), V::all(float(c + k + columns)), V::all(float(c + k)));
          V::store(second + i, V::max(V::load(second + i), V::min(size, most)));
          V::store(best + i, V::max(size, most));
          V::store(axes_ + i, V::choose(V::greater(size, most), axis, V::load(axes_ + i)));
        }
    }
    for (int64_t i = 0; i < kQueries; ++i) margins_[i] = best[i] - second[i];
  }

  int32_t exact_axis(int64_t position, const double* rotations, int64_t columns) const {
    const E* x = static_cast<const E*>(h_.qk.data) + position * h_.qk.stride;
    double most = -INFINITY, least = INFINITY;
    int64_t at_most = 0, at_least = 0;
    for (int64_t c = 0; c < columns; ++c) {
      double y = 0;
      for (int64_t d = 0; d < h_.dim; ++d) y += double(number(x[d])) * rotations[c * h_.dim + d];
      // ATen's maximum and minimum of what holds a NaN are that NaN.
      if (std::isnan(y)) return int32_t(c + columns);
      if (y > most) most = y, at_most = c;
      if (y < least) least = y, at_least = c;
    }
    return int32_t(most >= -least ? at_most : at_least + columns);
  }
  static float number(float x) { return x; }
  static float number(BFloat16 x) {
    const uint32_t bits = uint32_t(x.bits) << 16;
    float result = 0;
    std::memcpy(&result, &bits, sizeof(result));
    return result;
  }

  const LshHead& h_;
  int64_t dim_, values_, chunk_, queries_;  // padded
  float root_;
  float* next_;
  float *x_, *x_transposed_, *keys_, *v_, *weights_, *products_, *g_, *g_transposed_, *out_, *key_gradients_, *value_gradients_;
  float *largest_, *sum_, *factors_, *deltas_;
  int32_t *query_positions_, *key_positions_, *key_bad_, *query_bad_;
  int64_t rows_ = 0;  // of keys
  bool any_bad_ = false;
  float axes_[kQueries], margins_[kQueries];
};

template <class V, class E>
constexpr LshKernels lsh_table(const char* name) {
  return {
      name,
      [](const LshHead& head) { return Lsh<V, E>::scratch_size(head); },
      [](const LshHead& head, int64_t begin, int64_t end, const LshRotations& rotations, int32_t* buckets, void* scratch) {
        Lsh<V, E>(head, scratch).hash(begin, end, rotations, buckets);
      },
      [](const LshHead& head, int64_t round, int64_t first, int64_t last, void* scratch) {
        Lsh<V, E>(head, scratch).forward(round, first, last);
      },
      Lsh<V, E>::store_sums,
      [](const LshHead& head, int64_t first, int64_t last, const LshGradients& to, void* scratch) {
        Lsh<V, E>(head, scratch).backward(first, last, to);
      },
      Lsh<V, E>::store_gradients,
  };
}

}  // namespace
}  // namespace attn::kernels
