// The implementations of LSH attention for the CPU, which register themselves with lsh_implementations().
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "attn/cpu/kernel_family.h"
#include "attn/cpu/tensors.h"
#include "attn/lsh/cpu/heads.h"
#include "attn/lsh/cpu/kernels.h"
#include "attn/lsh/implementation.h"

namespace attn::cpu {
namespace {

using at::Tensor;

const KernelFamily<LshKernels, ImplementationRequest>& lsh_family() {
  static const KernelFamily<LshKernels, ImplementationRequest> all{.members = {{InstructionSet::avx512, lsh_kernels_avx512},
                                                                               {InstructionSet::avx2, lsh_kernels_avx2},
                                                                               {InstructionSet::neon, lsh_kernels_neon},
                                                                               {InstructionSet::portable, lsh_kernels_portable}}};
  return all;
}

// Divides the range 0 … size-1 of every head among the threads, and calls work(head, begin, end) for each part.
template <class Work>
void for_each_part(int64_t heads, int64_t size, const Work& work) {
  if (heads == 0) return;
  at::parallel_for(0, heads * size, 1, [&](int64_t first, int64_t last) {
    while (first < last) {
      const auto head = first / size, begin = first % size, end = std::min(size, begin + last - first);
      work(head, begin, end);
      first += end - begin;
    }
  });
}

// Writes to `order` the positions sorted by (bucket, position), hidden positions last, by a counting sort.
void sort_by_bucket(const int32_t* buckets, int64_t bucket_count, int64_t length, int64_t visible, int64_t* order) {
  std::vector<int64_t> next(size_t(bucket_count) + 1);
  for (int64_t i = 0; i < visible; ++i) ++next[size_t(buckets[i]) + 1];
  for (size_t b = 1; b < next.size(); ++b) next[b] += next[b - 1];
  for (int64_t i = 0; i < visible; ++i) order[next[size_t(buckets[i])]++] = i;
  for (int64_t i = visible; i < length; ++i) order[i] = i;
}

// Writes heads.order.
void hash_and_sort(const LshKernels& kernels, const LshHeads& heads, const Tensor& rotations, at::OptionalIntArrayRef factors) {
  const auto& common = heads.common;
  const auto columns = rotations.size(2);
  // [R·columns, D], and the same in float32 with three rows of zeros after it.
  const auto exact = rotations.detach().to(at::kDouble).permute({1, 2, 0}).contiguous().flatten(0, 1);
  const auto rounded = at::constant_pad_nd(exact.to(at::kFloat), {0, 0, 0, 3});
  const LshRotations rows{exact.const_data_ptr<double>(), rounded.const_data_ptr<float>(), factors ? (*factors)[0] / 2 : columns,
                          factors ? (*factors)[1] / 2 : 0,
                          float(at::linalg_vector_norm(exact, 2, at::IntArrayRef{1}).max().item<double>())};
  const auto bucket_count = 2 * rows.first_half * (factors ? 2 * rows.second_half : 1);
  const auto buckets = at::empty({heads.count(), common.rounds, common.length}, heads.qk.options().dtype(at::kInt));
  const ThreadScratch scratch(kernels.scratch_size(common), heads.accumulator());
  constexpr int64_t kPositions = 64;  // how many positions the kernels process together
  for_each_part(heads.count(), (common.length + kPositions - 1) / kPositions, [&](int64_t index, int64_t begin, int64_t end) {
    kernels.hash(heads.head(index), begin * kPositions, std::min(common.length, end * kPositions), rows,
                 buckets.data_ptr<int32_t>() + index * common.rounds * common.length, scratch.for_this_thread());
  });
  for_each_part(heads.count(), common.rounds, [&](int64_t index, int64_t begin, int64_t end) {
    const auto visible = heads.head(index).visible_keys;
    for (auto round = begin; round < end; ++round) {
      const auto offset = (index * common.rounds + round) * common.length;
      sort_by_bucket(buckets.const_data_ptr<int32_t>() + offset, bucket_count, common.length, visible,
                     heads.order.data_ptr<int64_t>() + offset);
    }
  });
}

// Memory in which each thread accumulates the gradients of one head. There is one copy for each thread.
struct GradientAccumulators {
  Tensor query, key, value;  // [copies, N, padded D], [copies, N, padded D], [copies, N, padded M]

  GradientAccumulators(const LshHeads& heads, int64_t copies)
      : query(at::empty({copies, heads.common.length, padded(heads.common.dim)}, heads.accumulator())),
        key(at::empty_like(query)),
        value(at::empty({copies, heads.common.length, padded(heads.common.value_dim)}, heads.accumulator())) {}
  void set_zero(int64_t copy) const {
    for (const auto* x : {&query, &key, &value})
      std::fill_n(static_cast<char*>(x->data_ptr()) + copy * x->stride(0) * x->element_size(), x->stride(0) * x->element_size(),
                  char{0});
  }
  LshGradients at(int64_t copy) const {
    const auto from = [&](const Tensor& x) -> void* {
      return static_cast<char*>(x.data_ptr()) + copy * x.stride(0) * x.element_size();
    };
    return {from(query), from(key), from(value)};
  }
};

// Results are reproducible: the order of additions depends on nothing but the number of threads.
class CpuLsh final : public LshImplementation {
 public:
  explicit CpuLsh(const LshKernels& kernels) : kernels_(kernels) {}

  std::string name() const override { return kernels_.name; }

  LshForward forward(const LshArguments& a, const Tensor& rotations, at::OptionalIntArrayRef bucket_factors) const override {
    const auto rounds = rotations.size(1);
    LshHeads heads(a, rounds);
    const auto& common = heads.common;
    const std::vector<int64_t> per_round{a.qk.size(0), a.qk.size(1), rounds, common.length};
    heads.order = at::empty(per_round, a.qk.options().dtype(at::kLong));
    heads.log_sum_exp = at::empty(per_round, a.qk.options().dtype(at::kDouble));
    heads.output = at::empty({a.qk.size(0), a.qk.size(1), common.length, common.value_dim}, a.qk.options());
    hash_and_sort(kernels_, heads, rotations, bucket_factors);

    if (rounds > 1) {
      const auto width = padded(common.value_dim);
      const bool in_place =
          heads.output.scalar_type() == accumulator_dtype(heads.output.scalar_type()) && width == common.value_dim;
      heads.partial_output =
          in_place ? heads.output : at::empty({a.qk.size(0), a.qk.size(1), common.length, width}, heads.accumulator());
      if (a.trax) heads.merged = at::empty({heads.count(), common.length, 2}, a.qk.options().dtype(at::kDouble));
    }
    const ThreadScratch scratch(kernels_.scratch_size(common), heads.accumulator());
    for (int64_t round = 0; round < rounds; ++round) {
      for_each_part(heads.count(), common.chunks, [&](int64_t index, int64_t begin, int64_t end) {
        kernels_.forward(heads.head(index), round, begin, end, scratch.for_this_thread());
      });
    }
    if (rounds > 1 && !heads.partial_output.is_same(heads.output))
      for_each_part(heads.count(), common.length, [&](int64_t index, int64_t begin, int64_t end) {
        kernels_.store_partial_output(heads.head(index), begin, end);
      });
    return {heads.output, heads.log_sum_exp, heads.order};
  }

  std::tuple<Tensor, Tensor> backward(const LshArguments& a, const Tensor& grad_output, const LshForward& result,
                                      const Tensor& shares) const override {
    LshHeads heads(a, result.order.size(2));
    heads.order = result.order.contiguous();
    heads.log_sum_exp = result.log_sum_exp.contiguous();
    heads.shares = shares.to(heads.accumulator()).contiguous();
    heads.grad_output = with_dense_rows(grad_output);
    heads.output = with_dense_rows(result.output);
    heads.grad_qk = at::empty(a.qk.sizes(), a.qk.options());
    heads.grad_v = at::empty(a.v.sizes(), a.v.options());
    const auto threads = int64_t{at::get_num_threads()};
    if (heads.count() % threads == 0 || heads.count() >= 4 * threads) backward_by_heads(heads, threads);
    else backward_by_chunks(heads, threads);
    return {heads.grad_qk, heads.grad_v};
  }

  double peak_bytes(const Problem& p, const LshSettings& s, bool backward) const override {
    const double tokens = double(p.batch) * double(p.heads) * double(p.query_len), places = tokens * double(s.rounds);
    const double number = std::max(4.0, p.element_bytes());  // bytes of one number in the accumulator dtype
    const double dim = double(padded(p.head_dim)), value_dim = double(padded(p.value_dim));
    const bool in_place = p.element_bytes() == number && p.value_dim % kPadding == 0;
    const double merging = s.rounds > 1 ? tokens * ((in_place ? 0 : number * value_dim) + (s.trax() ? 16 : 0)) : 0;
    const double buckets = 4 * places, order_and_log_sum_exp = 16 * places;
    if (!backward) return p.output_bytes() + order_and_log_sum_exp + std::max(buckets, merging);
    const double copies = double(at::get_num_threads()) * double(p.query_len);
    const double gradients = p.query_bytes() + p.value_bytes() + number * places + number * copies * (2 * dim + value_dim);
    return p.output_bytes() + order_and_log_sum_exp + std::max(std::max(buckets, merging), gradients);
  }

 private:
  // Computes the gradients with whole heads divided among the threads.
  void backward_by_heads(const LshHeads& heads, int64_t threads) const {
    const ThreadScratch scratch(kernels_.scratch_size(heads.common), heads.accumulator());
    const GradientAccumulators accumulators(heads, threads);
    for_each_part(heads.count(), 1, [&](int64_t index, int64_t, int64_t) {
      const auto params = heads.head(index);
      const auto copy = at::get_thread_num();
      accumulators.set_zero(copy);
      kernels_.backward(params, 0, params.rounds * params.chunks, accumulators.at(copy), scratch.for_this_thread());
      kernels_.store_gradients(params, 0, params.length, accumulators.at(copy));
    });
  }

  // Computes the gradients of one head after another. The threads share the chunks of a head; each has accumulators of its own,
  // which are added up at the end.
  void backward_by_chunks(const LshHeads& heads, int64_t threads) const {
    const ThreadScratch scratch(kernels_.scratch_size(heads.common), heads.accumulator());
    const GradientAccumulators accumulators(heads, threads);
    const auto chunks = heads.common.rounds * heads.common.chunks;
    for (int64_t index = 0; index < heads.count(); ++index) {
      const auto params = heads.head(index);
      at::parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
        for (auto part = first; part < last; ++part) {
          accumulators.set_zero(part);
          kernels_.backward(params, part * chunks / threads, (part + 1) * chunks / threads, accumulators.at(part),
                            scratch.for_this_thread());
        }
      });
      for (const auto* x : {&accumulators.query, &accumulators.key, &accumulators.value})
        for (int64_t part = 1; part < threads; ++part) x->select(0, 0).add_(x->select(0, part));
      for_each_part(1, params.length, [&](int64_t, int64_t begin, int64_t end) {
        kernels_.store_gradients(params, begin, end, accumulators.at(0));
      });
    }
  }

  const LshKernels& kernels_;
};

const bool lsh_registered =
    (lsh_implementations().register_cpu(implementations_of<LshImplementation, CpuLsh>(lsh_family())), true);

}  // namespace
}  // namespace attn::cpu
