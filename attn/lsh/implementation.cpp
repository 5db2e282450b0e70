#include "attn/lsh/implementation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "attn/cpu/call.h"
#include "attn/cpu/instruction_set.h"

namespace attn::kernels {
namespace {

using at::Tensor;

// The tensors of one call with the elements of each row side by side.
struct Call {
  Tensor qk, v, lengths, order, log_sum_exp, output, sums, merged, gradient, shares, of_qk, of_v;
  LshHead common{};

  Call(const Tensor& x, const Tensor& values, int64_t rounds, int64_t chunk, bool causal, bool trax,
       const std::optional<Tensor>& key_lengths)
      : qk(with_dense_rows(x)), v(with_dense_rows(values)) {
    TORCH_CHECK_VALUE(x.size(2) < std::numeric_limits<int32_t>::max(), "lsh_attention: qk has length ", x.size(2),
                      ", expected less than 2^31 - 1");
    common.length = x.size(2), common.dim = x.size(3), common.value_dim = values.size(3), common.rounds = rounds;
    common.chunk = std::min(chunk, common.length), common.chunks = (common.length + common.chunk - 1) / common.chunk;
    common.causal = causal, common.trax = trax;
    if (key_lengths) lengths = key_lengths->clamp(0, common.length).contiguous();
  }

  int64_t heads() const { return qk.size(0) * qk.size(1); }
  at::TensorOptions sums_options() const {
    return qk.options().dtype(qk.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  }

  LshHead head(int64_t index) const {
    auto head = common;
    head.visible_keys = lengths.defined() ? lengths.const_data_ptr<int64_t>()[index / qk.size(1)] : head.length;
    head.qk = rows_of_head(qk, index), head.v = rows_of_head(v, index), head.output = rows_of_head(output, index);
    head.gradient = rows_of_head(gradient, index);
    head.qk_gradient = rows_of_head(of_qk, index), head.v_gradient = rows_of_head(of_v, index);
    head.order = order.const_data_ptr<int64_t>() + index * head.rounds * head.length;
    head.log_sum_exp = static_cast<double*>(log_sum_exp.data_ptr()) + index * head.rounds * head.length;
    if (sums.defined()) head.sums = rows_of_head(sums, index).data;
    if (merged.defined()) head.merged = merged.data_ptr<double>() + 2 * index * head.length;
    if (shares.defined())
      head.shares = static_cast<const char*>(shares.const_data_ptr()) + shares.element_size() * index * head.rounds * head.length;
    return head;
  }
};

// work(head, begin, end) over parts of 0 … size-1 of each head.
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

// Stable, by (bucket, position); hidden positions last.
void sort_by_bucket(const int32_t* buckets, int64_t bucket_count, int64_t length, int64_t visible, int64_t* order) {
  std::vector<int64_t> next(size_t(bucket_count) + 1);
  for (int64_t i = 0; i < visible; ++i) ++next[size_t(buckets[i]) + 1];
  for (size_t b = 1; b < next.size(); ++b) next[b] += next[b - 1];
  for (int64_t i = 0; i < visible; ++i) order[next[size_t(buckets[i])]++] = i;
  for (int64_t i = visible; i < length; ++i) order[i] = i;
}

void sort_positions(const LshKernels& kernels, const Call& call, const Tensor& rotations, at::OptionalIntArrayRef factors) {
  const auto& common = call.common;
  const auto columns = rotations.size(2);
  // [R·columns, D], and three rows more in float32.
  const auto exact = rotations.detach().to(at::kDouble).permute({1, 2, 0}).contiguous().flatten(0, 1);
  const auto rounded = at::constant_pad_nd(exact.to(at::kFloat), {0, 0, 0, 3});
  LshRotations turned{exact.const_data_ptr<double>(), rounded.const_data_ptr<float>(), factors ? (*factors)[0] / 2 : columns,
                      factors ? (*factors)[1] / 2 : 0,
                      float(at::linalg_vector_norm(exact, 2, at::IntArrayRef{1}).max().item<double>())};
  const auto bucket_count = 2 * turned.first_half * (factors ? 2 * turned.second_half : 1);
  const auto buckets = at::empty({call.heads(), common.rounds, common.length}, call.qk.options().dtype(at::kInt));
  const ThreadScratch scratch(kernels.scratch_size(common), call.sums_options());
  constexpr int64_t kPositions = 64;  // what the kernels take at a time
  for_each_part(call.heads(), (common.length + kPositions - 1) / kPositions, [&](int64_t head, int64_t begin, int64_t end) {
    kernels.hash(call.head(head), begin * kPositions, std::min(common.length, end * kPositions), turned,
                 buckets.data_ptr<int32_t>() + head * common.rounds * common.length, scratch.of_this_thread());
  });
  for_each_part(call.heads(), common.rounds, [&](int64_t index, int64_t begin, int64_t end) {
    const auto head = call.head(index);
    for (auto round = begin; round < end; ++round)
      sort_by_bucket(buckets.const_data_ptr<int32_t>() + (index * common.rounds + round) * common.length, bucket_count,
                     common.length, head.visible_keys,
                     call.order.data_ptr<int64_t>() + (index * common.rounds + round) * common.length);
  });
}

// Where one thread's gradients add up.
struct Sums {
  Tensor query, key, value;

  Sums(const Call& call, int64_t copies)
      : query(at::empty({copies, call.common.length, padded(call.common.dim)}, call.sums_options())),
        key(at::empty_like(query)),
        value(at::empty({copies, call.common.length, padded(call.common.value_dim)}, call.sums_options())) {}
  void zero(int64_t copy) const {
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

// The same numbers for the same number of threads.
std::tuple<Tensor, Tensor, Tensor> lsh_forward(const LshKernels& kernels, const Tensor& qk, const Tensor& v,
                                               const Tensor& rotations, int64_t chunk, bool causal,
                                               const std::optional<Tensor>& key_lengths, bool trax,
                                               at::OptionalIntArrayRef bucket_factors) {
  const auto rounds = rotations.size(1);
  Call call(qk, v, rounds, chunk, causal, trax, key_lengths);
  const auto& common = call.common;
  const std::vector<int64_t> per_round{qk.size(0), qk.size(1), rounds, common.length};
  call.order = at::empty(per_round, qk.options().dtype(at::kLong));
  call.log_sum_exp = at::empty(per_round, qk.options().dtype(at::kDouble));
  call.output = at::empty({qk.size(0), qk.size(1), common.length, common.value_dim}, qk.options());
  sort_positions(kernels, call, rotations, bucket_factors);

  if (rounds > 1) {
    const auto width = padded(common.value_dim);
    const bool in_place =
        call.output.scalar_type() == c10::typeMetaToScalarType(call.sums_options().dtype()) && width == common.value_dim;
    call.sums = in_place ? call.output : at::empty({qk.size(0), qk.size(1), common.length, width}, call.sums_options());
    if (trax) call.merged = at::empty({call.heads(), common.length, 2}, qk.options().dtype(at::kDouble));
  }
  const ThreadScratch scratch(kernels.scratch_size(common), call.sums_options());
  for (int64_t round = 0; round < rounds; ++round) {
    for_each_part(call.heads(), common.chunks, [&](int64_t head, int64_t begin, int64_t end) {
      kernels.forward(call.head(head), round, begin, end, scratch.of_this_thread());
    });
  }
  if (rounds > 1 && !call.sums.is_same(call.output))
    for_each_part(call.heads(), common.length,
                  [&](int64_t head, int64_t begin, int64_t end) { kernels.store_sums(call.head(head), begin, end); });
  return {call.output, call.log_sum_exp, call.order};
}

std::tuple<Tensor, Tensor> lsh_backward(const LshKernels& kernels, const Tensor& gradient, const Tensor& qk, const Tensor& v,
                                        const Tensor& output, const std::optional<Tensor>& key_lengths, const Tensor& log_sum_exp,
                                        const Tensor& order, const Tensor& shares, int64_t chunk, bool causal, bool trax) {
  Call call(qk, v, order.size(2), chunk, causal, trax, key_lengths);
  const auto& common = call.common;
  call.order = order.contiguous(), call.log_sum_exp = log_sum_exp.contiguous();
  call.shares = shares.to(call.sums_options()).contiguous();
  call.gradient = with_dense_rows(gradient), call.output = with_dense_rows(output);
  call.of_qk = at::empty(qk.sizes(), qk.options()), call.of_v = at::empty(v.sizes(), v.options());
  const auto threads = int64_t{at::get_num_threads()}, chunks = common.rounds * common.chunks;
  const ThreadScratch scratch(kernels.scratch_size(common), call.sums_options());

  if (call.heads() % threads == 0 || call.heads() >= 4 * threads) {
    const Sums sums(call, threads);
    for_each_part(call.heads(), 1, [&](int64_t index, int64_t, int64_t) {
      const auto head = call.head(index);
      const auto copy = at::get_thread_num();
      sums.zero(copy);
      kernels.backward(head, 0, chunks, sums.at(copy), scratch.of_this_thread());
      kernels.store_gradients(head, 0, common.length, sums.at(copy));
    });
    return {call.of_qk, call.of_v};
  }
  // Few heads: the chunks of one are shared by all threads, each with sums of its own.
  const Sums sums(call, threads);
  for (int64_t index = 0; index < call.heads(); ++index) {
    const auto head = call.head(index);
    at::parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
      for (auto part = first; part < last; ++part) {
        sums.zero(part);
        kernels.backward(head, part * chunks / threads, (part + 1) * chunks / threads, sums.at(part), scratch.of_this_thread());
      }
    });
    for (const auto* x : {&sums.query, &sums.key, &sums.value})
      for (int64_t part = 1; part < threads; ++part) x->select(0, 0).add_(x->select(0, part));
    for_each_part(1, common.length,
                  [&](int64_t, int64_t begin, int64_t end) { kernels.store_gradients(head, begin, end, sums.at(0)); });
  }
  return {call.of_qk, call.of_v};
}

class CpuLsh final : public LshImplementation {
 public:
  explicit CpuLsh(const LshKernels& kernels) : kernels_(kernels) {}

  std::string name() const override { return kernels_.name; }
  std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& qk, const Tensor& v, const Tensor& rotations, int64_t chunk,
                                             bool causal, const std::optional<Tensor>& key_lengths, bool trax,
                                             at::OptionalIntArrayRef bucket_factors) const override {
    return lsh_forward(kernels_, qk, v, rotations, chunk, causal, key_lengths, trax, bucket_factors);
  }
  std::tuple<Tensor, Tensor> backward(const Tensor& gradient, const Tensor& qk, const Tensor& v, const Tensor& output,
                                      const std::optional<Tensor>& key_lengths, const Tensor& log_sum_exp, const Tensor& order,
                                      const Tensor& shares, int64_t chunk, bool causal, bool trax) const override {
    return lsh_backward(kernels_, gradient, qk, v, output, key_lengths, log_sum_exp, order, shares, chunk, causal, trax);
  }

 private:
  const LshKernels& kernels_;
};

constexpr KernelFamily<LshKernels> kFamily{"lsh_attention", lsh_kernels_portable, lsh_kernels_avx2, lsh_kernels_avx512};
FindLsh cuda_lsh = nullptr;

}  // namespace

const LshKernels* find_lsh_kernels(const std::string& wanted, at::ScalarType dtype, c10::DeviceType device) {
  return kFamily.find(wanted, dtype, device, "LSH attention", true);
}

const LshImplementation* find_lsh(const LshRequest& request) {
  if (request.wanted == "composed") return nullptr;
  if (request.device != cuda_device())
    return implementation_of<CpuLsh>(kFamily, find_lsh_kernels(request.wanted, request.dtype, request.device));
  if (cuda_lsh) return cuda_lsh(request);
  TORCH_CHECK_VALUE(request.wanted == "auto", "lsh_attention: kernel '", request.wanted,
                    "' on CUDA needs libattn-cuda.so, which is not loaded");
  return nullptr;
}

void set_cuda_lsh(FindLsh find) { cuda_lsh = find; }

}  // namespace attn::kernels
