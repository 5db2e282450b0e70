// Registers the method sparse-sdpa: softmax attention that computes only the visible pairs of a pattern, by the operator of
// attn/sparse/sparse_attention.h.
#include <ATen/ATen.h>

#include <algorithm>

#include "attn/reference.h"
#include "attn/registry.h"
#include "attn/sparse/cache.h"
#include "attn/sparse/sparse_attention.h"
#include "attn/sparse/sparse_method.h"

namespace attn {
namespace {

class SparseSdpa : public SparseMethod {
 public:
  using SparseMethod::SparseMethod;

  Capabilities capabilities() const override {
    Capabilities can;
    can.shared_heads = SharedHeads::read;
    can.causal_cross_attention = true;
    can.patterns = can.packed = can.decoding = can.windows_in_decoding = true;
    can.inputs.push_back(find_input("sinks"));
    can.nan_reaches_its_rows_only = false;  // tiles with visible and hidden pairs multiply hidden values by zero
    return can;
  }

  Cost cost(const Problem& p, Protocol protocol) const override {
    if (protocol == Protocol::decode) return step_cost(p);
    const double share = p.key_lengths.is_full() ? 1 : 0.5;
    const bool joins_parts = visible_parts(p.pattern, p.causal, p.query_len, p.key_len, p.key_len).size() > 1;
    const double pairs = visible_pairs_of(p) * share * double(p.batch) * double(p.output_head_count());
    auto cost = cost_of_pairs(p, pairs, joins_parts, protocol == Protocol::forward_backward);
    if (protocol == Protocol::prefill) cost.peak_bytes += state_bytes(p, p.query_len);
    return cost;
  }

  double state_bytes(const Problem& p, int64_t) const override { return KeyValueCache::bytes_for(p); }

  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override { return reference::softmax(inputs, rows); }

 protected:
  at::Tensor attend(const Inputs& inputs) override {
    const auto name = run(inputs);
    const auto& mask = inputs.mask;
    return std::get<0>(sparse_attention(inputs.q, inputs.k, inputs.v,
                                        {.causal = mask.causal,
                                         .pattern = mask.pattern.text(),
                                         .key_lengths = mask.key_lengths,
                                         .cu_seqlens = mask.cu_seqlens,
                                         .sinks = inputs.sinks_if_any(),
                                         .implementation = name}));
  }

  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override {
    return std::make_unique<KeyValueCache>(problem);
  }
  void absorb(DecodingState& state, const Inputs& tokens) override { static_cast<KeyValueCache&>(state).append(tokens); }

  at::Tensor decode(DecodingState& state, const Inputs& token) override {
    auto done = static_cast<KeyValueCache&>(state).step(token, wanted_implementation());
    ran(done.implementation);
    return done.output;
  }

  std::unique_ptr<BoundStep> make_bound_step(DecodingState& state, const Inputs& token, const at::Tensor& output,
                                             int64_t workers) const override {
    if (wanted_implementation() == kComposedImplementation) return nullptr;
    return static_cast<KeyValueCache&>(state).bind(token, output, workers, wanted_implementation());
  }

 private:
  // The number of visible pairs of one head of a batch entry all of whose keys are valid.
  static double visible_pairs_of(const Problem& p) {
    const auto count = [&](int64_t query_len, int64_t key_len) {
      return count_pairs(visible_parts(p.pattern, p.causal, query_len, key_len, key_len));
    };
    if (p.packed.is_none()) return count(p.query_len, p.key_len);
    double pairs = 0;
    for (const auto length : p.packed.expected_lengths(p.query_len))
      if (length > 0) pairs += count(length, length);
    return pairs;
  }

  // A step reads the content of the cache once.
  static Cost step_cost(const Problem& p) {
    auto longer = p;
    longer.key_len = longer.query_len = p.query_len + 1;
    auto cost = cached_step_cost(p, KeyValueCache::bytes_for(longer));
    // Without kernels, which are for float32, scores and weights are stored.
    const double scores = double(p.batch) * double(p.output_head_count()) * double(KeyValueCache::capacity_for(longer));
    if (p.dtype != at::kFloat) cost.peak_bytes += 2 * scores * p.element_bytes();
    return cost;
  }
};

const RegisterMethod registered{
    entry_of<SparseSdpa>("sparse-sdpa", "softmax attention that computes the visible pairs of a pattern alone", "O(N²)", "O(N)",
                         {implementation_option({"avx512", "avx2", "neon", "portable"})})};

}  // namespace
}  // namespace attn
