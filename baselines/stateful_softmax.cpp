// stateful-softmax: softmax attention that decodes with a preallocated cache of keys and values.
// stateful-softmax-concat: the same with a cache that grows by concatenation at each token, as the authors of "Transformers are
// RNNs" ran it. Both compute whole sequences as softmax does. Steps are composed of ATen operations; only the bound step of
// stateful-softmax runs kernels, for float32 on the CPU.
#include <ATen/ATen.h>

#include <algorithm>
#include <memory>

#include "attn/registry.h"
#include "attn/sparse/cache.h"
#include "baselines/softmax.h"

namespace attn {
namespace {

class StatefulSoftmax : public CachedSoftmax {
 public:
  Capabilities capabilities() const override {
    auto can = CachedSoftmax::capabilities();
    can.windows_in_decoding = true;
    return can;
  }
  double state_bytes(const Problem& p, int64_t) const override { return KeyValueCache::bytes_for(p); }

 protected:
  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override {
    return std::make_unique<KeyValueCache>(problem);
  }
  void absorb(DecodingState& state, const Inputs& tokens) override { static_cast<KeyValueCache&>(state).append(tokens); }
  at::Tensor decode(DecodingState& state, const Inputs& token) override {
    ran("aten/preallocated-cache");
    const auto [k, v] = static_cast<KeyValueCache&>(state).append(token);
    return attend_to_cache(token.q, k, v, token.sinks_if_any());
  }
  std::unique_ptr<BoundStep> make_bound_step(DecodingState& state, const Inputs& token, const at::Tensor& output,
                                             int64_t workers) const override {
    return static_cast<KeyValueCache&>(state).bind(token, output, workers);
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
    return attend_to_cache(token.q, cache.k, cache.v, token.sinks_if_any());
  }
};

const RegisterMethod preallocated{entry_of<StatefulSoftmax>(
    "stateful-softmax", "softmax that decodes with a preallocated cache of keys and values", "O(N²)", "O(N²)")};
const RegisterMethod concatenated{entry_of<StatefulSoftmaxConcat>(
    "stateful-softmax-concat", "softmax that decodes with a cache grown by concatenation at each token", "O(N²)", "O(N²)")};

}  // namespace
}  // namespace attn
