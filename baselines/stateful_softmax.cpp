// stateful-softmax: softmax attention that decodes with a preallocated cache of keys and values.
// stateful-softmax-concat: the same with a cache that grows by concatenation at each token, as the authors of "Transformers are
// RNNs" ran it. Both compute whole sequences as softmax does. Steps are composed of ATen operations; only the bound step of
// stateful-softmax runs kernels, for float32 on the CPU.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "attn/cpu/cached_attention.h"
#include "attn/cpu/instruction_set.h"
#include "attn/registry.h"
#include "baselines/softmax.h"

namespace attn {
namespace {

// A step that writes its key and value into the cache and attends to it with kernels for the CPU.
class BoundCacheStep : public BoundStep {
 public:
  BoundCacheStep(PreallocatedCache& cache, const Inputs& token, const at::Tensor& output, int64_t workers)
      : kernels_(cpu::cached_attention_kernels(cpu::choose_instruction_set("auto"))),
        implementation_(std::string("kernel/") + kernels_.name),
        cache_(cache),
        token_(token),
        output_(output),
        scores_(at::empty({workers, cpu::cached_attention_scratch(cache.k.storage().size(2))}, output.options())) {}

  void run(int64_t begin, int64_t end, int64_t worker) noexcept override {
    const auto heads = token_.q.size(1), position = cache_.k.size();
    const auto head_dim = token_.q.size(3), value_dim = token_.v.size(3);
    auto* const scores = scores_.mutable_data_ptr<float>() + worker * scores_.stride(0);
    for (auto index = begin; index < end; ++index) {
      const auto row = [&](const at::Tensor& x) {
        return x.mutable_data_ptr<float>() + index / heads * x.stride(0) + index % heads * x.stride(1);
      };
      float *const k = row(cache_.k.storage()), *const v = row(cache_.v.storage());
      std::copy_n(row(token_.k), head_dim, k + position * head_dim);
      std::copy_n(row(token_.v), value_dim, v + position * value_dim);
      kernels_.attend(
          {row(token_.q), k, v, row(output_), scores, position + 1, head_dim, value_dim, float(1 / std::sqrt(double(head_dim)))});
    }
  }
  const std::string& implementation() const override { return implementation_; }

 protected:
  void grow() noexcept override { cache_.k.grow(1), cache_.v.grow(1); }

 private:
  const cpu::CachedAttentionKernels& kernels_;
  std::string implementation_;
  PreallocatedCache& cache_;
  Inputs token_;
  at::Tensor output_, scores_;
};

class StatefulSoftmax : public CachedSoftmax {
 public:
  double state_bytes(const Problem& p, int64_t) const override { return PreallocatedCache::bytes_for(p); }

 protected:
  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override {
    return std::make_unique<PreallocatedCache>(problem);
  }
  void absorb(DecodingState& state, const Inputs& tokens) override { static_cast<PreallocatedCache&>(state).append(tokens); }
  at::Tensor decode(DecodingState& state, const Inputs& token) override {
    ran("aten/preallocated-cache");
    absorb(state, token);
    const auto& cache = static_cast<PreallocatedCache&>(state);
    return attend_to_cache(token.q, cache.k.rows(), cache.v.rows());
  }
  std::unique_ptr<BoundStep> make_bound_step(DecodingState& state, const Inputs& token, const at::Tensor& output,
                                             int64_t workers) const override {
    if (!token.q.is_cpu() || token.q.scalar_type() != at::kFloat) return nullptr;
    return std::make_unique<BoundCacheStep>(static_cast<PreallocatedCache&>(state), token, output, workers);
  }
};

class ConcatenatedCache : public DecodingState {
 public:
  at::Tensor k, v;

 protected:
  std::vector<at::Tensor> tensors() const override { return {k, v}; }
};

class StatefulSoftmaxConcat : public CachedSoftmax {
 public:
  double state_bytes(const Problem& p, int64_t position) const override {
    return (p.key_bytes() + p.value_bytes()) / double(p.key_len) * double(position);
  }
  // During the concatenation, the old cache is in memory beside the new one.
  Cost cost(const Problem& p, Protocol protocol) const override {
    auto cost = CachedSoftmax::cost(p, protocol);
    if (protocol == Protocol::decode) {
      cost.min_bytes += 2 * (p.key_bytes() + p.value_bytes());
      cost.peak_bytes += std::max(p.key_bytes(), p.value_bytes());
    }
    return cost;
  }

 protected:
  std::unique_ptr<DecodingState> make_state(const Problem& p) const override {
    auto cache = std::make_unique<ConcatenatedCache>();
    const auto options = at::TensorOptions(p.dtype).device(p.device);
    cache->k = at::empty({p.batch, p.heads, 0, p.head_dim}, options);
    cache->v = at::empty({p.batch, p.heads, 0, p.value_dim}, options);
    return cache;
  }
  void absorb(DecodingState& state, const Inputs& tokens) override {
    auto& cache = static_cast<ConcatenatedCache&>(state);
    cache.k = at::cat({cache.k, tokens.k}, 2);
    cache.v = at::cat({cache.v, tokens.v}, 2);
  }
  at::Tensor decode(DecodingState& state, const Inputs& token) override {
    ran("aten/concatenated-cache");
    absorb(state, token);
    const auto& cache = static_cast<ConcatenatedCache&>(state);
    return attend_to_cache(token.q, cache.k, cache.v);
  }
};

const RegisterMethod preallocated{entry_of<StatefulSoftmax>(
    "stateful-softmax", "softmax that decodes with a preallocated cache of keys and values", "O(N²)", "O(N²)")};
const RegisterMethod concatenated{entry_of<StatefulSoftmaxConcat>(
    "stateful-softmax-concat", "softmax that decodes with a cache grown by concatenation at each token", "O(N²)", "O(N²)")};

}  // namespace
}  // namespace attn
