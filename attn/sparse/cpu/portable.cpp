// The portable kernels of sparse attention. They process one query after another, and accumulate in float64 for float64 tensors
// and in float32 for others. "auto" chooses them where there are no vector kernels.
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cmath>

#include "attn/cpu/kernel_table.h"
#include "attn/sparse/cpu/kernels.h"

namespace attn::cpu {
namespace {

// E is the element type of the tensors, T the accumulator dtype. The public functions are those of SparseKernels.
template <class E, class T>
class PortableSparse {
 public:
  PortableSparse(const SparseHeadParams& params, const VisiblePart& part) : p_(params), part_(part) {}

  static int64_t scratch_size(const SparseHeadParams& p) { return std::max(p.dim, p.value_dim); }

  void forward(bool resumes, int64_t begin, int64_t end, T* sums) const {
    auto* const log_sum_exp = static_cast<T*>(p_.log_sum_exp);
    for (int64_t t = begin; t < end; ++t) {
      const auto i = query(t);
      const T before = resumes ? log_sum_exp[i] : T(p_.sink);
      T largest = before;
      for_each_key(t, [&](int64_t j) { largest = std::max(largest, score(i, j)); });
      // Without a key or a sink, `before - largest` would be −∞ − −∞, which is NaN.
      const bool has_none = largest == -INFINITY;
      T total = has_none ? T(0) : std::exp(before - largest);
      for (int64_t m = 0; m < p_.value_dim; ++m) sums[m] = resumes && !has_none ? total * partial_output(i, m) : T(0);
      for_each_key(t, [&](int64_t j) {
        const T weight = std::exp(score(i, j) - largest);
        total += weight;
        for (int64_t m = 0; m < p_.value_dim; ++m) sums[m] += weight * at(p_.v, j, m);
      });
      log_sum_exp[i] = has_none ? T(-INFINITY) : largest + std::log(total);
      for (int64_t m = 0; m < p_.value_dim; ++m) {
        const T output = has_none ? T(0) : sums[m] / total;
        if (p_.partial_output) static_cast<T*>(p_.partial_output)[i * padded(p_.value_dim) + m] = output;
        static_cast<E*>(p_.output.data)[i * p_.output.stride + m] = E(output);
      }
    }
  }

  static void store_delta(const SparseHeadParams& p, int64_t begin, int64_t end) {
    const auto* const grad_log_sum_exp = static_cast<const T*>(p.grad_log_sum_exp);
    for (int64_t i = begin; i < end; ++i) {
      T sum = 0;
      for (int64_t m = 0; m < p.value_dim; ++m) sum += at(p.output, i, m) * at(p.grad_output, i, m);
      static_cast<T*>(p.delta)[i] = sum - (grad_log_sum_exp ? grad_log_sum_exp[i] : T(0));
    }
  }

  void backward(int64_t begin, int64_t end) const {
    auto *grad_q = static_cast<T*>(p_.grad_q), *grad_k = static_cast<T*>(p_.grad_k), *grad_v = static_cast<T*>(p_.grad_v);
    for (int64_t t = begin; t < end; ++t) {
      const auto i = query(t);
      const T log_sum_exp = static_cast<const T*>(p_.log_sum_exp)[i], delta = static_cast<const T*>(p_.delta)[i];
      for_each_key(t, [&](int64_t j) {
        const T weight = std::exp(score(i, j) - log_sum_exp);
        T grad_weight = 0;
        for (int64_t m = 0; m < p_.value_dim; ++m) {
          grad_weight += at(p_.grad_output, i, m) * at(p_.v, j, m);
          grad_v[j * p_.grad_v_stride + m] += weight * at(p_.grad_output, i, m);
        }
        const T grad_score = T(p_.scale) * weight * (grad_weight - delta);
        for (int64_t d = 0; d < p_.dim; ++d) {
          grad_q[i * p_.grad_q_stride + d] += grad_score * at(p_.k, j, d);
          grad_k[j * p_.grad_k_stride + d] += grad_score * at(p_.q, i, d);
        }
      });
    }
  }

 private:
  static T at(const Rows& rows, int64_t row, int64_t column) {
    return T(static_cast<const E*>(rows.data)[row * rows.stride + column]);
  }
  int64_t query(int64_t t) const { return part_.query(t); }
  T partial_output(int64_t i, int64_t m) const {
    return p_.partial_output ? static_cast<const T*>(p_.partial_output)[i * padded(p_.value_dim) + m] : at(p_.output, i, m);
  }
  T score(int64_t i, int64_t j) const {
    T sum = 0;
    for (int64_t d = 0; d < p_.dim; ++d) sum += at(p_.q, i, d) * at(p_.k, j, d);
    return T(p_.scale) * sum;
  }

  // Calls visit(position) for each key that row t sees.
  template <class Visit>
  void for_each_key(int64_t t, const Visit& visit) const {
    Interval one, other;
    part_.keys_that_are_seen(t, t + 1, one, other);
    for (const auto& range : {one, other})
      for (auto u = range.begin; u < range.end; ++u) {
        Interval rows, more_rows;
        part_.rows_that_see(u, t, t + 1, rows, more_rows);
        if (!rows.is_empty() || !more_rows.is_empty()) visit(part_.position(u));
      }
  }

  const SparseHeadParams& p_;
  const VisiblePart& part_;
};

template <class E, class T>
constexpr SparseKernels portable_table() {
  using Kernels = PortableSparse<E, T>;
  return {
      "portable",
      /*tile=*/1,
      Kernels::scratch_size,
      [](const SparseHeadParams& params, const VisiblePart& part, bool resumes, int64_t begin, int64_t end, void* scratch) {
        Kernels(params, part).forward(resumes, begin, end, static_cast<T*>(scratch));
      },
      Kernels::store_delta,
      [](const SparseHeadParams& params, const VisiblePart& part, int64_t begin, int64_t end, void*) {
        Kernels(params, part).backward(begin, end);
      },
  };
}

}  // namespace

const SparseKernels* sparse_kernels_portable(ElementType element) {
  static constexpr auto float32 = portable_table<float, float>();
  static constexpr auto bfloat16 = portable_table<c10::BFloat16, float>();
  static constexpr auto float64 = portable_table<double, double>();
  return by_element_type<SparseKernels>(element, &float32, &bfloat16, &float64);
}

}  // namespace attn::cpu
