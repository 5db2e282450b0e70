// Registers the method sparse-sdpa: softmax attention that computes the visible pairs of a pattern alone, by the operator of
// attn/sparse/sparse_attention.h.
#include <ATen/ATen.h>

#include <algorithm>

#include "attn/reference.h"
#include "attn/registry.h"
#include "attn/sparse/cache.h"
#include "attn/sparse/implementation.h"
#include "attn/sparse/sparse_attention.h"

namespace attn {
namespace {

class SparseSdpa : public AttentionMethod {
 public:
  explicit SparseSdpa(const Options& options) : wanted_(options.text("implementation")) {}

  Capabilities capabilities() const override {
    Capabilities can;
    can.shared_heads = SharedHeads::read;
    can.causal_cross_attention = true;
    can.patterns = can.packed = can.decoding = can.windows_in_decoding = true;
    can.nan_reaches_its_rows_only = false;  // tiles with visible and hidden pairs multiply hidden values by zero
    return can;
  }

  bool takes_float16(c10::DeviceType device) const override { return implementations_.takes_float16(device); }

  std::optional<std::string> why_unsupported(const Problem& p, Protocol protocol) const override {
    if (auto reason = AttentionMethod::why_unsupported(p, protocol)) return reason;
    return implementations_.why_unsupported(label(), request_for(p, protocol == Protocol::forward_backward));
  }

  // Counts the operations of the visible pairs: one product for the scores and one for the output forward; the backward pass
  // computes the scores again, and has four more products.
  Cost cost(const Problem& p, Protocol protocol) const override {
    if (protocol == Protocol::decode) return step_cost(p);
    const bool backward = protocol == Protocol::forward_backward;
    const auto* const implementation = implementations_.find(request_for(p, backward));
    const double share = p.key_lengths.is_full() ? 1 : 0.5;
    const bool joins_parts = visible_parts(p.pattern, p.causal, p.query_len, p.key_len, p.key_len).size() > 1;
    const double pairs = visible_pairs_of(p) * share * double(p.batch) * double(p.output_head_count());
    const double dim = double(p.head_dim), value_dim = double(p.value_dim);
    Cost cost;
    cost.flops = pairs * (2 * dim + 2 * value_dim + 5);
    if (backward) cost.flops += pairs * (6 * dim + 4 * value_dim + 5);
    const double accumulator = double(c10::elementSize(accumulator_dtype(p.dtype)));
    const double rows = double(p.batch) * double(p.output_head_count()) * double(p.query_len) * accumulator;
    cost.min_bytes = p.input_bytes() + p.output_bytes();
    cost.peak_bytes = p.input_bytes() + p.output_bytes() + rows;
    if (backward && implementation) cost.min_bytes = 2 * cost.min_bytes + p.input_bytes();
    cost.peak_bytes += implementation ? implementation->working_bytes(p, joins_parts, backward)
                                      : p.score_count() * accumulator * (backward ? 5 : 3);  // scores and weights of all pairs
    if (protocol == Protocol::prefill) cost.peak_bytes += state_bytes(p, p.query_len);
    return cost;
  }

  double state_bytes(const Problem& p, int64_t) const override { return KeyValueCache::bytes_for(p); }

  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override { return reference::softmax(inputs, rows); }

 protected:
  at::Tensor attend(const Inputs& inputs) override {
    const auto &q = inputs.q, &k = inputs.k, &v = inputs.v;
    const auto* implementation = implementations_.find(
        {wanted_, q.scalar_type(), q.device().type(), q.size(3), v.size(3), records_gradients({q, k, v}), q.device().index()});
    ran(implementation ? "kernel/" + implementation->name() : "aten/materialised");
    const auto& mask = inputs.mask;
    return std::get<0>(sparse_attention(q, k, v,
                                        {.causal = mask.causal,
                                         .pattern = mask.pattern.text(),
                                         .key_lengths = mask.key_lengths,
                                         .cu_seqlens = mask.cu_seqlens,
                                         .implementation = implementation ? implementation->name() : kComposedImplementation}));
  }

  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override {
    return std::make_unique<KeyValueCache>(problem);
  }
  void absorb(DecodingState& state, const Inputs& tokens) override { static_cast<KeyValueCache&>(state).append(tokens); }

  at::Tensor decode(DecodingState& state, const Inputs& token) override {
    auto done = static_cast<KeyValueCache&>(state).step(token, wanted_);
    ran(done.implementation);
    return done.output;
  }

  std::unique_ptr<BoundStep> make_bound_step(DecodingState& state, const Inputs& token, const at::Tensor& output,
                                             int64_t workers) const override {
    if (wanted_ == kComposedImplementation) return nullptr;
    return static_cast<KeyValueCache&>(state).bind(token, output, workers, wanted_);
  }

 private:
  // The number of visible pairs of a batch entry and head with all its keys.
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

  // A step reads what the cache holds once.
  static Cost step_cost(const Problem& p) {
    auto longer = p;
    longer.key_len = longer.query_len = p.query_len + 1;
    auto cost = cached_step_cost(p, KeyValueCache::bytes_for(longer));
    // Where no kernels run, there are scores and weights.
    const double scores = double(p.batch) * double(p.output_head_count()) * double(KeyValueCache::capacity_for(longer));
    if (p.dtype != at::kFloat) cost.peak_bytes += 2 * scores * p.element_bytes();
    return cost;
  }

  ImplementationRequest request_for(const Problem& p, bool gradients) const {
    return {wanted_, p.dtype, p.device, p.head_dim, p.value_dim, gradients};
  }

  std::string wanted_;
  ImplementationResolver<SparseRegistry> implementations_{sparse_implementations()};
};

const RegisterMethod registered{
    entry_of<SparseSdpa>("sparse-sdpa", "softmax attention that computes the visible pairs of a pattern alone", "O(N²)", "O(N)",
                         {implementation_option({"avx512", "avx2", "neon", "portable"})})};

}  // namespace
}  // namespace attn
