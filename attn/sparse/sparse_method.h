// SparseMethod, the base of methods that attend by the operator of sparse attention, attn/sparse/sparse_attention.h.
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
  as_keys  // as many as of keys, of which there are no more than of queries
};

class SparseMethod : public AttentionMethod {
 public:
  // Reads the option `implementation`.
  explicit SparseMethod(const Options& options, ValueHeads value_heads = ValueHeads::any);

  bool takes_float16(c10::DeviceType device) const override;
  // Also checks the heads of values, and says why no implementation of the operator computes the problem.
  std::optional<std::string> why_unsupported(const Problem& problem, Protocol protocol) const override;

 protected:
  ImplementationRequest request_for(const Problem& problem, bool gradients) const;

  // Says which implementation the operator runs for these inputs, and returns its name.
  std::string run(const Inputs& inputs);

  // The cost of attention to so many visible pairs, over all batch entries and heads. Forward there is a product for the scores
  // and one for the output; the backward pass computes the scores again, and has four more products. `joins_parts` says whether
  // the outputs of several visible parts are joined.
  Cost cost_of_pairs(const Problem& problem, double pairs, bool joins_parts, bool backward) const;

  const std::string& wanted_implementation() const { return wanted_; }

 private:
  std::string wanted_;
  ValueHeads value_heads_;
  ImplementationResolver<SparseRegistry> implementations_{sparse_implementations()};
};

}  // namespace attn
