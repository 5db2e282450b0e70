// Writes tokens into the cache, and attends to it with kernels or with ATen operations.
#include "attn/sparse/cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "attn/cpu/cached_attention.h"
#include "attn/cpu/instruction_set.h"
#include "attn/cpu/tensors.h"
#include "attn/implementations.h"

namespace attn {
namespace {

int64_t first_keys(const Pattern& pattern) { return std::max(pattern.first, pattern.global); }

}  // namespace

int64_t KeyValueCache::capacity_for(const Problem& p) {
  return p.pattern.is_all() ? p.key_len : std::min(p.key_len, first_keys(p.pattern) + p.pattern.size);
}

KeyValueCache::KeyValueCache(const Problem& p) : first_(std::min(first_keys(p.pattern), capacity_for(p) - 1)) {
  const auto options = at::TensorOptions(p.dtype).device(p.device);
  k_ = at::empty({p.batch, p.key_head_count(), capacity_for(p), p.head_dim}, options);
  v_ = at::empty({p.batch, p.value_head_count(), capacity_for(p), p.value_dim}, options);
}

double KeyValueCache::bytes_for(const Problem& p) {
  return (p.key_bytes() + p.value_bytes()) * double(capacity_for(p)) / double(p.key_len);
}

KeyValueCache::Content KeyValueCache::append(const Inputs& tokens) {
  const auto count = tokens.k.size(2);
  // Copies runs of tokens whose places are next to each other. Tokens that later ones of the same call would replace are skipped.
  for (int64_t t = 0; t < count;) {
    const auto token = position() + t, at = place(token);
    if (const auto last_kept = position() + count - (capacity() - first_); token >= first_ && token < last_kept) {
      t = last_kept - position();
      continue;
    }
    auto run = std::min(count - t, capacity() - at);
    if (token < first_) run = std::min(run, first_ - token);
    k_.narrow(2, at, run).copy_(tokens.k.narrow(2, t, run));
    v_.narrow(2, at, run).copy_(tokens.v.narrow(2, t, run));
    t += run;
  }
  const auto size = std::min(position() + count, capacity());
  return {k_.narrow(2, 0, size), v_.narrow(2, 0, size)};
}

at::Tensor softmax_with_sinks(const at::Tensor& scores, const at::Tensor& sinks) {
  auto sizes = scores.sizes().vec();
  sizes.back() = 1;
  const auto weights = at::softmax(at::cat({scores, sinks.expand(sizes)}, -1), -1);  // in the wider of both dtypes
  return weights.narrow(-1, 0, scores.size(-1)).to(scores.scalar_type());
}

at::Tensor attend_to_cache(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::optional<at::Tensor>& sinks) {
  Inputs all{q, k, v};
  const auto batch = q.size(0), heads = all.output_heads();
  // If heads share keys and values in the same way, the queries of a group are rows of one product, which needs no copy of the
  // cache.
  if (v.size(1) != k.size(1) || q.size(1) != heads) all = all.with_all_heads();
  const auto groups = all.k.size(1);
  const auto rows = all.q.reshape({batch, groups, heads / groups, q.size(3)}) / std::sqrt(double(q.size(3)));
  auto weights = at::matmul(rows, all.k.transpose(2, 3));
  if (sinks) weights = softmax_with_sinks(weights, sinks->view({1, groups, heads / groups, 1}));
  else weights = at::softmax(weights, -1);
  return at::matmul(weights, all.v).view({batch, heads, 1, v.size(3)});
}

Cost cached_step_cost(const Problem& p, double state_bytes) {
  auto longer = p;
  longer.key_len = p.query_len + 1;
  const double rows = double(p.batch) * double(p.output_head_count()), keys = double(KeyValueCache::capacity_for(longer));
  const double token = (p.input_bytes() + p.output_bytes()) / double(p.query_len);
  return {rows * keys * (2 * double(p.head_dim) + 2 * double(p.value_dim) + 5), state_bytes + token, state_bytes + token};
}

// A decoding step that writes its key and value into the cache, and attends to the cache.
class BoundCacheStep : public BoundStep {
 public:
  BoundCacheStep(KeyValueCache& cache, const Inputs& token, const at::Tensor& output, int64_t workers,
                 const std::string& implementation)
      : kernels_(cpu::cached_attention_kernels(cpu::choose_instruction_set(implementation))),
        implementation_(std::string("kernel/") + kernels_.name),
        cache_(cache),
        token_(token),
        output_(output),
        scores_(at::empty({workers, cpu::cached_attention_scratch(cache.capacity())}, output.options())) {}

  void run(int64_t begin, int64_t end, int64_t worker) noexcept override {
    const auto place = cache_.place(cache_.position()), size = std::min(cache_.position() + 1, cache_.capacity());
    const auto head_dim = token_.q.size(3), value_dim = token_.v.size(3), heads = output_.size(1);
    auto* const scores = scores_.mutable_data_ptr<float>() + worker * scores_.stride(0);
    for (auto index = begin; index < end; ++index) {
      const auto row = [&](const at::Tensor& x) {
        return x.mutable_data_ptr<float>() + index / heads * x.stride(0) + index % heads / (heads / x.size(1)) * x.stride(1);
      };
      float *const k = row(cache_.k_), *const v = row(cache_.v_);
      // Each head writes the key and value before it reads them. Heads that share keys write the same numbers.
      std::copy_n(row(token_.k), head_dim, k + place * head_dim);
      std::copy_n(row(token_.v), value_dim, v + place * value_dim);
      const auto& sinks = token_.sinks;
      const auto sink = sinks.defined() ? sinks.const_data_ptr<float>()[index % heads * sinks.stride(0)] : -INFINITY;
      kernels_.attend(
          {row(token_.q), k, v, row(output_), scores, size, head_dim, value_dim, float(1 / std::sqrt(double(head_dim))), sink});
    }
  }
  const std::string& implementation() const override { return implementation_; }

 private:
  const cpu::CachedAttentionKernels& kernels_;
  std::string implementation_;
  KeyValueCache& cache_;
  Inputs token_;
  at::Tensor output_, scores_;
};

std::unique_ptr<BoundStep> KeyValueCache::bind(const Inputs& token, const at::Tensor& output, int64_t workers,
                                               const std::string& implementation) {
  if (!token.q.is_cpu() || token.q.scalar_type() != at::kFloat) return nullptr;
  return std::make_unique<BoundCacheStep>(*this, token, output, workers, implementation);
}

KeyValueCache::Step KeyValueCache::step(const Inputs& token, const std::string& implementation) {
  auto output = at::empty({token.q.size(0), token.output_heads(), 1, token.v.size(3)}, token.q.options());
  Inputs rows{cpu::with_dense_rows(token.q), cpu::with_dense_rows(token.k), cpu::with_dense_rows(token.v)};
  rows.sinks = token.sinks;
  const auto workers = cpu::step_workers(bytes());
  const auto bound =
      implementation == kComposedImplementation || output.numel() == 0 ? nullptr : bind(rows, output, workers, implementation);
  if (!bound) {
    const auto [k, v] = append(token);
    return {attend_to_cache(token.q, k, v, token.sinks_if_any()), "aten/cache"};
  }
  cpu::run_step(*bound, output.size(0) * output.size(1), workers);
  return {output, bound->implementation()};
}

}  // namespace attn
