// SparseMethod, the base class of methods that call the operator of sparse attention, attn/sparse/sparse_attention.h.
#pragma once

#include <optional>
#include <string>

#include "attn/method.h"
#include "attn/options.h"
#include "attn/sparse/implementation.h"

namespace attn {

// How many heads of values a method takes.
enum class ValueHeads {
  any,
  as_keys  // as many as of keys, and no more than of queries
};

class SparseMethod : public AttentionMethod {
 public:
  // Reads the option `implementation`.
  explicit SparseMethod(const Options& options, ValueHeads value_heads = ValueHeads::any);

  bool takes_float16(c10::DeviceType device) const override;
  // Also checks the number of heads of values, and whether an implementation of the operator can compute the problem.
  std::optional<std::string> why_unsupported(const Problem& problem, Protocol protocol) const override;

 protected:
  ImplementationRequest request_for(const Problem& problem, bool gradients) const;

  // Records which implementation the operator runs for these inputs, see ran(), and returns its name.
  std::string run(const Inputs& inputs);

  // The cost of attention for `pairs` visible pairs, counted over all batch entries and heads. The forward pass has a product for
  // the scores and one for the output; the backward pass computes the scores again, and has four more products. `joins_parts`
  // says whether the outputs of several parts are joined.
  Cost cost_of_pairs(const Problem& problem, double pairs, bool joins_parts, bool backward) const;

  const std::string& wanted_implementation() const { return wanted_; }

 private:
  std::string wanted_;
  ValueHeads value_heads_;
  ImplementationResolver<SparseRegistry> implementations_{sparse_implementations()};
};

}  // namespace attn
