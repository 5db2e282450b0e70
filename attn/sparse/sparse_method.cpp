// Finds the implementation that the operator runs, and predicts its cost.
#include "attn/sparse/sparse_method.h"

#include <ATen/ATen.h>

namespace attn {

SparseMethod::SparseMethod(const Options& options, ValueHeads value_heads)
    : wanted_(options.text("implementation")), value_heads_(value_heads) {}

bool SparseMethod::takes_float16(c10::DeviceType device) const { return implementations_.takes_float16(device); }

std::optional<std::string> SparseMethod::why_unsupported(const Problem& p, Protocol protocol) const {
  if (auto reason = AttentionMethod::why_unsupported(p, protocol)) return reason;
  if (value_heads_ == ValueHeads::as_keys && (p.key_head_count() > p.heads || p.value_head_count() != p.key_head_count()))
    return label() + " needs as many heads of values as of keys, and no more than of queries";
  return implementations_.why_unsupported(label(), request_for(p, protocol == Protocol::forward_backward));
}

ImplementationRequest SparseMethod::request_for(const Problem& p, bool gradients) const {
  return {wanted_, p.dtype, p.device, p.head_dim, p.value_dim, gradients};
}

std::string SparseMethod::run(const Inputs& inputs) {
  const auto &q = inputs.q, &k = inputs.k, &v = inputs.v;
  const auto* const implementation = implementations_.find({wanted_, q.scalar_type(), q.device().type(), q.size(3), v.size(3),
                                                            records_gradients({q, k, v, inputs.sinks}), q.device().index()});
  ran(implementation ? "kernel/" + implementation->name() : "aten/materialised");
  return implementation ? implementation->name() : kComposedImplementation;
}

Cost SparseMethod::cost_of_pairs(const Problem& p, double pairs, bool joins_parts, bool backward) const {
  const auto* const implementation = implementations_.find(request_for(p, backward));
  const double dim = double(p.head_dim), value_dim = double(p.value_dim);
  const double accumulator = double(c10::elementSize(accumulator_dtype(p.dtype)));
  Cost cost;
  cost.flops = pairs * (2 * dim + 2 * value_dim + 5) + (backward ? pairs * (6 * dim + 4 * value_dim + 5) : 0);
  cost.min_bytes = p.input_bytes() + p.output_bytes();
  cost.peak_bytes = cost.min_bytes + double(p.batch) * double(p.output_head_count()) * double(p.query_len) * accumulator;
  if (backward && implementation) cost.min_bytes = 2 * cost.min_bytes + p.input_bytes();
  cost.peak_bytes += implementation ? implementation->working_bytes(p, joins_parts, backward)
                                    : p.score_count() * accumulator * (backward ? 5 : 3);  // scores and weights of all pairs
  return cost;
}

}  // namespace attn
