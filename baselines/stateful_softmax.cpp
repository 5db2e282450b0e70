// stateful-softmax: decodes with a cache of keys and values, its memory taken beforehand. stateful-softmax-concat: the cache is
// grown by concatenation at each token, as the paper's authors ran it. Whole sequences go as in softmax.
#include <ATen/ATen.h>

#include "attn/registry.h"
#include "baselines/softmax.h"

namespace attn {
namespace {

class PreallocatedCache : public DecodingState {
 public:
  explicit PreallocatedCache(const Problem& p) : k(p, p.head_dim), v(p, p.value_dim) {}
  GrowingRows k, v;

 protected:
  std::vector<at::Tensor> tensors() const override { return {k.storage(), v.storage()}; }
};

class StatefulSoftmax : public CachedSoftmax {
 public:
  double state_bytes(const Problem& p, int64_t) const override { return p.key_bytes() + p.value_bytes(); }

 protected:
  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override {
    return std::make_unique<PreallocatedCache>(problem);
  }
  void absorb(DecodingState& state, const at::Tensor&, const at::Tensor& k, const at::Tensor& v) override {
    auto& cache = static_cast<PreallocatedCache&>(state);
    cache.k.append(k), cache.v.append(v);
  }
  at::Tensor decode(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override {
    ran("aten/preallocated-cache");
    absorb(state, q, k, v);
    const auto& cache = static_cast<PreallocatedCache&>(state);
    return attend_to_cache(q, cache.k.rows(), cache.v.rows());
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
  // While it grows, the old cache is there beside the new one.
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
  void absorb(DecodingState& state, const at::Tensor&, const at::Tensor& k, const at::Tensor& v) override {
    auto& cache = static_cast<ConcatenatedCache&>(state);
    cache.k = at::cat({cache.k, k}, 2);
    cache.v = at::cat({cache.v, v}, 2);
  }
  at::Tensor decode(DecodingState& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) override {
    ran("aten/concatenated-cache");
    absorb(state, q, k, v);
    const auto& cache = static_cast<ConcatenatedCache&>(state);
    return attend_to_cache(q, cache.k, cache.v);
  }
};

const RegisterMethod preallocated{entry_of<StatefulSoftmax>(
    "stateful-softmax", "softmax that decodes with a preallocated cache of keys and values", "O(N²)", "O(N²)")};
const RegisterMethod concatenated{entry_of<StatefulSoftmaxConcat>(
    "stateful-softmax-concat", "the same, the cache grown by concatenation at each token", "O(N²)", "O(N²)")};

}  // namespace
}  // namespace attn
