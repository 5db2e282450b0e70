// The portable kernels of LSH attention. They process one query after another, and accumulate in float64 for float64 tensors and
// in float32 for others. They run where there are no vector kernels.
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attn/cpu/kernel_table.h"
#include "attn/lsh/cpu/kernels.h"

namespace attn::cpu {
namespace {

// E is the element type of the tensors, T the accumulator dtype. The public functions implement those of LshKernels.
template <class E, class T>
class PortableLsh {
 public:
  explicit PortableLsh(const LshHeadParams& params) : p_(params), dim_(padded(params.dim)), values_(padded(params.value_dim)) {}

  void hash(int64_t begin, int64_t end, const LshRotations& rotations, int32_t* buckets) const {
    const auto columns = rotations.first_half + rotations.second_half;
    for (int64_t r = 0; r < p_.rounds; ++r) {
      const double* first = rotations.exact + r * columns * p_.dim;
      for (int64_t i = begin; i < end; ++i) {
        const E* x = static_cast<const E*>(p_.qk.data) + i * p_.qk.stride;
        const auto entry = [x](int64_t d) { return x[d]; };
        int64_t bucket = exact_axis(first, rotations.first_half, p_.dim, entry);
        if (rotations.second_half > 0)
          bucket +=
              2 * rotations.first_half * exact_axis(first + rotations.first_half * p_.dim, rotations.second_half, p_.dim, entry);
        buckets[r * p_.length + i] = int32_t(bucket);
      }
    }
  }

  void forward(int64_t round, int64_t first, int64_t last) const {
    for (int64_t c = first; c < last; ++c) {
      const auto chunk = round * p_.chunks + c;
      const auto keys = keys_of(chunk);
      for (const auto position : queries_of(chunk)) {
        const auto row = softmax(position, keys);
        std::vector<T> output(size_t(p_.value_dim));
        for (size_t j = 0; j < keys.size(); ++j)
          if (row.weights[j] > 0)
            for (size_t m = 0; m < output.size(); ++m) output[m] += row.weights[j] * keys[j].v[m];
        const double log_sum_exp = row.not_a_number ? NAN
                                   : row.sees       ? double(row.largest) + std::log(double(row.sum))
                                                    : -INFINITY;
        p_.log_sum_exp[round * p_.length + position] = log_sum_exp;
        merge(round, position, log_sum_exp, row.sees ? row.sum : T(1), output);
      }
    }
  }

  static void store_partial_output(const LshHeadParams& p, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* row = static_cast<T*>(p.partial_output) + i * padded(p.value_dim);
      std::copy(row, row + p.value_dim, static_cast<E*>(p.output.data) + i * p.output.stride);
    }
  }

  void backward(int64_t first, int64_t last, const LshGradients& to) const {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const auto keys = keys_of(chunk);
      const auto round = chunk / p_.chunks;
      for (const auto position : queries_of(chunk)) {
        const auto row = softmax(position, keys);
        // If the query of a hidden position is not finite, its row of the output is NaN. That row contributes no gradient.
        if (row.query_not_finite && position >= p_.visible_keys) continue;
        const E* g = static_cast<const E*>(p_.grad_output.data) + position * p_.grad_output.stride;
        const T factor = static_cast<const T*>(p_.shares)[round * p_.length + position] / (row.sees ? row.sum : T(1));
        std::vector<T> grad_weights(keys.size());
        T delta = 0;
        for (size_t j = 0; j < keys.size(); ++j) {
          for (size_t m = 0; m < keys[j].v.size(); ++m) grad_weights[j] += T(g[m]) * keys[j].v[m];
          if (row.visible[j]) delta += row.weights[j] * factor * grad_weights[j];
        }
        if (p_.trax) delta = grad_output_times_output(position);  // equals Σ w (g·v) over all rounds
        else delta *= T(p_.rounds);
        for (size_t j = 0; j < keys.size(); ++j) {
          if (!row.visible[j]) continue;
          const T weight = row.weights[j] * factor, grad_logit = weight * (grad_weights[j] - delta);
          add(g, p_.value_dim, weight, static_cast<T*>(to.value) + keys[j].position * values_);
          add(row.x.data(), p_.dim, grad_logit, static_cast<T*>(to.key) + keys[j].position * dim_);
          add(keys[j].key.data(), p_.dim, grad_logit, static_cast<T*>(to.query) + position * dim_);
        }
      }
    }
  }

  static void store_gradients(const LshHeadParams& p, int64_t begin, int64_t end, const LshGradients& from) {
    const PortableLsh on(p);
    const T root = 1 / std::sqrt(T(p.dim));
    for (int64_t i = begin; i < end; ++i) {
      bool finite = true;
      const auto x = on.finite_row(p.qk, i, p.dim, finite);
      const T *grad_query = static_cast<T*>(from.query) + i * on.dim_, *grad_key = static_cast<T*>(from.key) + i * on.dim_;
      const T scale = on.key_scale(x);
      T along = 0;
      for (size_t d = 0; d < x.size(); ++d) along += x[d] * grad_key[d];
      along *= scale * scale * scale / (p.trax ? T(p.dim) : T(1));
      E* to = static_cast<E*>(p.grad_qk.data) + i * p.grad_qk.stride;
      for (size_t d = 0; d < x.size(); ++d) to[d] = E(grad_query[d] + (grad_key[d] * scale - x[d] * along) * root);
      const T* grad_value = static_cast<T*>(from.value) + i * on.values_;
      std::copy(grad_value, grad_value + p.value_dim, static_cast<E*>(p.grad_v.data) + i * p.grad_v.stride);
    }
  }

 private:
  struct Key {
    int64_t position;
    bool finite;
    std::vector<T> key, v;
  };
  // A query x, the weights exp(logit − largest) of its keys with their sum, and which of the keys it sees. `sees` says whether it
  // sees any key; not_a_number says whether its row of the output is NaN.
  struct Row {
    std::vector<T> x, weights;
    std::vector<char> visible;
    T largest = -std::numeric_limits<T>::infinity(), sum = 0;
    bool sees = false, query_not_finite = false, not_a_number = false;
  };

  // Returns row i. If one of its entries is not finite, returns zeros and sets `finite` to false.
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
    if (p_.trax) return 1 / std::sqrt(squares / T(p_.dim) + T(kMeanSquareEpsilon));
    return squares == 0 ? T(0) : 1 / std::sqrt(squares);
  }

  std::vector<int64_t> queries_of(int64_t chunk) const {
    const auto begin = chunk % p_.chunks * p_.chunk, end = std::min(p_.length, begin + p_.chunk);
    const int64_t* order = p_.order + chunk / p_.chunks * p_.length;
    return {order + begin, order + end};
  }

  // The visible keys of a chunk and of the chunk that it looks back to.
  std::vector<Key> keys_of(int64_t chunk) const {
    std::vector<Key> keys;
    for (const auto source : {chunk, chunk_before(p_, chunk)}) {
      if (source < 0) continue;
      for (const auto position : queries_of(source)) {
        if (position >= p_.visible_keys) continue;
        bool finite = true;
        auto x = finite_row(p_.qk, position, p_.dim, finite), v = finite_row(p_.v, position, p_.value_dim, finite);
        const T scale = key_scale(x) / std::sqrt(T(p_.dim));
        for (auto& entry : x) entry *= scale;
        keys.push_back({position, finite, std::move(x), std::move(v)});
      }
    }
    return keys;
  }

  Row softmax(int64_t position, const std::vector<Key>& keys) const {
    Row row;
    bool finite = true;
    row.x = finite_row(p_.qk, position, p_.dim, finite);
    row.query_not_finite = !finite;
    row.weights.resize(keys.size());
    row.visible.resize(keys.size());
    for (size_t j = 0; j < keys.size(); ++j) {
      row.visible[j] = !p_.causal || keys[j].position <= position;
      if (!row.visible[j]) continue;
      T logit = 0;
      for (size_t d = 0; d < row.x.size(); ++d) logit += row.x[d] * keys[j].key[d];
      if (p_.trax && keys[j].position == position) logit -= T(kOwnPositionPenalty);
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

  T grad_output_times_output(int64_t position) const {
    const E* g = static_cast<const E*>(p_.grad_output.data) + position * p_.grad_output.stride;
    const E* output = static_cast<const E*>(p_.output.data) + position * p_.output.stride;
    T sum = 0;
    for (int64_t m = 0; m < p_.value_dim; ++m) sum += T(g[m]) * T(output[m]);
    return sum;
  }

  // Merges row `output` of one round, which is not normalised, with the rounds before it. `sum` is the sum of its weights.
  void merge(int64_t round, int64_t position, double log_sum_exp, T sum, const std::vector<T>& output) const {
    T previous = 1, share = std::isnan(log_sum_exp) ? std::numeric_limits<T>::quiet_NaN() : 1 / (sum * T(p_.rounds));
    if (p_.rounds == 1) {
      E* row = static_cast<E*>(p_.output.data) + position * p_.output.stride;
      for (size_t m = 0; m < output.size(); ++m) row[m] = E(log_sum_exp == -INFINITY ? T(0) : output[m] * share);
      return;
    }
    if (p_.trax) {
      const auto factors = RoundShares::join(p_.merged + 2 * position, round == 0, log_sum_exp);
      previous = T(factors.previous);
      share = T(factors.share) / sum;
    }
    T* row = static_cast<T*>(p_.partial_output) + position * values_;
    for (size_t m = 0; m < output.size(); ++m) row[m] = (round == 0 ? T(0) : row[m] * previous) + output[m] * share;
  }

  template <class X>
  static void add(const X* x, int64_t dim, T factor, T* to) {
    for (int64_t d = 0; d < dim; ++d) to[d] += T(x[d]) * factor;
  }

  LshHeadParams p_;
  int64_t dim_, values_;  // padded
};

template <class E, class T>
LshKernels kernels() {
  using Kernels = PortableLsh<E, T>;
  return {
      "portable",
      [](const LshHeadParams&) { return int64_t{0}; },
      [](const LshHeadParams& params, int64_t begin, int64_t end, const LshRotations& rotations, int32_t* buckets, void*) {
        Kernels(params).hash(begin, end, rotations, buckets);
      },
      [](const LshHeadParams& params, int64_t round, int64_t first, int64_t last, void*) {
        Kernels(params).forward(round, first, last);
      },
      Kernels::store_partial_output,
      [](const LshHeadParams& params, int64_t first, int64_t last, const LshGradients& to, void*) {
        Kernels(params).backward(first, last, to);
      },
      Kernels::store_gradients,
  };
}

}  // namespace

const LshKernels* lsh_kernels_portable(ElementType element) {
  static const LshKernels float32 = kernels<float, float>(), float64 = kernels<double, double>(),
                          bfloat16 = kernels<c10::BFloat16, float>();
  return by_element_type<LshKernels>(element, &float32, &bfloat16, &float64);
}

}  // namespace attn::cpu
