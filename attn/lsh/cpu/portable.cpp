// The plain version: one query after the other, in float64 for float64 tensors and in float32 for others. What the vector
// kernels are tested against, and what runs where there are none.
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attn/lsh/cpu/kernels.h"

namespace attn::kernels {
namespace {

// E: elements of the tensors, T: of sums.
template <class E, class T>
class Lsh {
 public:
  explicit Lsh(const LshHead& head) : h_(head), dim_(padded(head.dim)), values_(padded(head.value_dim)) {}

  void hash(int64_t begin, int64_t end, const LshRotations& rotations, int32_t* buckets) const {
    const auto columns = rotations.first_half + rotations.second_half;
    for (int64_t r = 0; r < h_.rounds; ++r) {
      const double* first = rotations.exact + r * columns * h_.dim;
      for (int64_t i = begin; i < end; ++i) {
        const E* x = static_cast<const E*>(h_.qk.data) + i * h_.qk.stride;
        int64_t bucket = nearest_axis(x, first, rotations.first_half);
        if (rotations.second_half > 0)
          bucket += 2 * rotations.first_half * nearest_axis(x, first + rotations.first_half * h_.dim, rotations.second_half);
        buckets[r * h_.length + i] = int32_t(bucket);
      }
    }
  }

  void forward(int64_t round, int64_t first, int64_t last) const {
    for (int64_t c = first; c < last; ++c) {
      const auto chunk = round * h_.chunks + c;
      const auto keys = keys_of(chunk);
      for (const auto position : queries_of(chunk)) {
        const auto row = softmax(position, keys);
        std::vector<T> output(size_t(h_.value_dim));
        for (size_t j = 0; j < keys.size(); ++j)
          if (row.weights[j] > 0)
            for (size_t m = 0; m < output.size(); ++m) output[m] += row.weights[j] * keys[j].v[m];
        const double total = row.not_a_number ? NAN : row.sees ? double(row.largest) + std::log(double(row.sum)) : -INFINITY;
        h_.log_sum_exp[round * h_.length + position] = total;
        merge(round, position, total, row.sees ? row.sum : T(1), output);
      }
    }
  }

  static void store_sums(const LshHead& h, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* row = static_cast<T*>(h.sums) + i * padded(h.value_dim);
      std::copy(row, row + h.value_dim, static_cast<E*>(h.output.data) + i * h.output.stride);
    }
  }

  void backward(int64_t first, int64_t last, const LshGradients& to) const {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const auto keys = keys_of(chunk);
      const auto round = chunk / h_.chunks;
      for (const auto position : queries_of(chunk)) {
        const auto row = softmax(position, keys);
        if (row.query_not_finite && position >= h_.visible_keys) continue;  // a spoilt row; no gradient comes from there
        const E* g = static_cast<const E*>(h_.gradient.data) + position * h_.gradient.stride;
        const T factor = static_cast<const T*>(h_.shares)[round * h_.length + position] / (row.sees ? row.sum : T(1));
        std::vector<T> of_weights(keys.size());
        T delta = 0;
        for (size_t j = 0; j < keys.size(); ++j) {
          for (size_t m = 0; m < keys[j].v.size(); ++m) of_weights[j] += T(g[m]) * keys[j].v[m];
          if (row.visible[j]) delta += row.weights[j] * factor * of_weights[j];
        }
        if (h_.trax) delta = gradient_times_output(position);  // the same sum over all rounds
        else delta *= T(h_.rounds);
        for (size_t j = 0; j < keys.size(); ++j) {
          if (!row.visible[j]) continue;
          const T weight = row.weights[j] * factor, of_logit = weight * (of_weights[j] - delta);
          add(g, h_.value_dim, weight, static_cast<T*>(to.value) + keys[j].position * values_);
          add(row.x.data(), h_.dim, of_logit, static_cast<T*>(to.key) + keys[j].position * dim_);
          add(keys[j].key.data(), h_.dim, of_logit, static_cast<T*>(to.query) + position * dim_);
        }
      }
    }
  }

  static void store_gradients(const LshHead& h, int64_t begin, int64_t end, const LshGradients& from) {
    const Lsh on(h);
    const T root = 1 / std::sqrt(T(h.dim));
    for (int64_t i = begin; i < end; ++i) {
      bool finite = true;
      const auto x = on.finite_row(h.qk, i, h.dim, finite);
      const T *of_query = static_cast<T*>(from.query) + i * on.dim_, *of_key = static_cast<T*>(from.key) + i * on.dim_;
      const T scale = on.key_scale(x);
      T along = 0;
      for (size_t d = 0; d < x.size(); ++d) along += x[d] * of_key[d];
      along *= scale * scale * scale / (h.trax ? T(h.dim) : T(1));
      E* to = static_cast<E*>(h.qk_gradient.data) + i * h.qk_gradient.stride;
      for (size_t d = 0; d < x.size(); ++d) to[d] = E(of_query[d] + (of_key[d] * scale - x[d] * along) * root);
      const T* of_value = static_cast<T*>(from.value) + i * on.values_;
      std::copy(of_value, of_value + h.value_dim, static_cast<E*>(h.v_gradient.data) + i * h.v_gradient.stride);
    }
  }

 private:
  struct Key {
    int64_t position;
    bool finite;
    std::vector<T> key, v;
  };
  // A query's weights exp(logit − largest) of the keys, their sum, and who is visible.
  struct Row {
    std::vector<T> x, weights;
    std::vector<char> visible;
    T largest = -std::numeric_limits<T>::infinity(), sum = 0;
    bool sees = false, query_not_finite = false, not_a_number = false;
  };

  int64_t nearest_axis(const E* x, const double* columns, int64_t count) const {
    double most = -INFINITY, least = INFINITY;
    int64_t at_most = 0, at_least = 0;
    for (int64_t c = 0; c < count; ++c) {
      double y = 0;
      for (int64_t d = 0; d < h_.dim; ++d) y += double(x[d]) * columns[c * h_.dim + d];
      // ATen's maximum and minimum of what holds a NaN are that NaN.
      if (std::isnan(y)) return c + count;
      if (y > most) most = y, at_most = c;
      if (y < least) least = y, at_least = c;
    }
    return most >= -least ? at_most : at_least + count;
  }

  // Zeros when an entry is not finite.
  std::vector<T> finite_row(const Rows& rows, int64_t i, int64_t dim, bool& finite) const {
    const E* from = static_cast<const E*>(rows.data) + i * rows.stride;
    std::vector<T> row(from, from + dim);
    if (std::all_of(row.begin(), row.end(), [](T x) { return std::isfinite(x); })) return row;
    finite = false;
    return std::vector<T>(size_t(dim));
  }

  T key_scale(const std::vector<T>& x) const {
    T squares = 0;
    for (const T entry : x) squares += entry * entry;
    if (h_.trax) return 1 / std::sqrt(squares / T(h_.dim) + T(kMeanSquareEpsilon));
    return squares == 0 ? T(0) : 1 / std::sqrt(squares);
  }

  std::vector<int64_t> queries_of(int64_t chunk) const {
    const auto begin = chunk % h_.chunks * h_.chunk, end = std::min(h_.length, begin + h_.chunk);
    const int64_t* order = h_.order + chunk / h_.chunks * h_.length;
    return {order + begin, order + end};
  }

  // The visible ones of a chunk and the one before.
  std::vector<Key> keys_of(int64_t chunk) const {
    std::vector<Key> keys;
    for (const auto source : {chunk, chunk_before(h_, chunk)}) {
      if (source < 0) continue;
      for (const auto position : queries_of(source)) {
        if (position >= h_.visible_keys) continue;
        bool finite = true;
        auto x = finite_row(h_.qk, position, h_.dim, finite), v = finite_row(h_.v, position, h_.value_dim, finite);
        const T scale = key_scale(x) / std::sqrt(T(h_.dim));
        for (auto& entry : x) entry *= scale;
        keys.push_back({position, finite, std::move(x), std::move(v)});
      }
    }
    return keys;
  }

  Row softmax(int64_t position, const std::vector<Key>& keys) const {
    Row row;
    bool finite = true;
    row.x = finite_row(h_.qk, position, h_.dim, finite);
    row.query_not_finite = !finite;
    row.weights.resize(keys.size());
    row.visible.resize(keys.size());
    for (size_t j = 0; j < keys.size(); ++j) {
      row.visible[j] = !h_.causal || keys[j].position <= position;
      if (!row.visible[j]) continue;
      T logit = 0;
      for (size_t d = 0; d < row.x.size(); ++d) logit += row.x[d] * keys[j].key[d];
      if (h_.trax && keys[j].position == position) logit -= T(kOwnPositionPenalty);
      row.weights[j] = logit;
      row.largest = std::max(row.largest, logit);
      row.not_a_number |= !keys[j].finite;
      row.sees = true;
    }
    row.not_a_number |= row.query_not_finite && row.sees;
    for (size_t j = 0; j < keys.size(); ++j) {
      if (!row.visible[j]) continue;
      row.weights[j] = std::exp(row.weights[j] - row.largest);
      row.sum += row.weights[j];
    }
    return row;
  }

  T gradient_times_output(int64_t position) const {
    const E* g = static_cast<const E*>(h_.gradient.data) + position * h_.gradient.stride;
    const E* output = static_cast<const E*>(h_.output.data) + position * h_.output.stride;
    T sum = 0;
    for (int64_t m = 0; m < h_.value_dim; ++m) sum += T(g[m]) * T(output[m]);
    return sum;
  }

  // The row of one round into those before it.
  void merge(int64_t round, int64_t position, double total, T sum, const std::vector<T>& output) const {
    T kept = 1, share = std::isnan(total) ? std::numeric_limits<T>::quiet_NaN() : 1 / (sum * T(h_.rounds));
    if (h_.rounds == 1) {
      E* row = static_cast<E*>(h_.output.data) + position * h_.output.stride;
      for (size_t m = 0; m < output.size(); ++m) row[m] = E(total == -INFINITY ? T(0) : output[m] * share);
      return;
    }
    if (h_.trax) {
      const auto joined = RoundShares::join(h_.merged + 2 * position, round == 0, total);
      kept = T(joined.kept);
      share = T(joined.share) / sum;
    }
    T* row = static_cast<T*>(h_.sums) + position * values_;
    for (size_t m = 0; m < output.size(); ++m) row[m] = (round == 0 ? T(0) : row[m] * kept) + output[m] * share;
  }

  template <class X>
  static void add(const X* x, int64_t dim, T factor, T* to) {
    for (int64_t d = 0; d < dim; ++d) to[d] += T(x[d]) * factor;
  }

  LshHead h_;
  int64_t dim_, values_;  // padded
};

template <class E, class T>
LshKernels kernels() {
  using On = Lsh<E, T>;
  return {
      "portable",
      [](const LshHead&) { return int64_t{0}; },
      [](const LshHead& head, int64_t begin, int64_t end, const LshRotations& rotations, int32_t* buckets, void*) {
        On(head).hash(begin, end, rotations, buckets);
      },
      [](const LshHead& head, int64_t round, int64_t first, int64_t last, void*) { On(head).forward(round, first, last); },
      On::store_sums,
      [](const LshHead& head, int64_t first, int64_t last, const LshGradients& to, void*) { On(head).backward(first, last, to); },
      On::store_gradients,
  };
}

}  // namespace

const LshKernels* lsh_kernels_portable(Element element) {
  static const LshKernels float32 = kernels<float, float>(), float64 = kernels<double, double>(),
                          bfloat16 = kernels<c10::BFloat16, float>();
  return by_element<LshKernels>(element, &float32, &bfloat16, &float64);
}

}  // namespace attn::kernels
