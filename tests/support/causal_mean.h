// A method for tests that can decode: the output of a token is the mean of the values up to and including its own. Each flaw is a
// way in which the method is wrong, so that tests can check that the worker detects it.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/registry.h"

namespace attn {

class MeanState : public DecodingState {
 public:
  at::Tensor sum, count;  // [B,H,1,M], int64 [1]
  // Tensors that flaws hold besides. tensors() returns the reported ones only.
  std::vector<at::Tensor> reported, unreported;

 protected:
  std::vector<at::Tensor> tensors() const override {
    std::vector<at::Tensor> all = {sum, count};
    all.insert(all.end(), reported.begin(), reported.end());
    return all;
  }
};

class CausalMean : public AttentionMethod {
 public:
  enum class Flaw {
    none,
    larger_state,        // the state is larger than its formula says
    keeps_more,          // the state keeps more memory in use than tensors() reports
    keeps_the_inputs,    // the same, by holding views of the inputs
    wrong_step,          // every step is wrong
    wrong_late_step,     // steps are wrong at positions that the small check does not reach
    wrong_extend,        // extend() is wrong for more tokens than the small check takes in
    nan_step,            // every step gives NaN
    wrong_prefill,       // the output of prefill() is wrong
    prefill_keeps_more,  // as keeps_more, but only after prefill()
    throws_in_step,      // every step throws
    approximates,        // not a flaw: exact_attention() is twice the mean, and diagnostics() reports a number
    unknown_diagnostic   // diagnostics() reports a number that diagnostic_specs() does not declare
  };
  explicit CausalMean(Flaw flaw) : flaw_(flaw) {}

  int64_t steps = 0;  // how many steps this object has computed

  Capabilities capabilities() const override {
    Capabilities can;
    can.decoding = true;
    can.full = can.cross_attention = false;
    return can;
  }
  Cost cost(const Problem& p, Protocol protocol) const override {
    return protocol == Protocol::decode ? Cost{7, 11, 13} : Cost{1, 1, p.input_bytes()};
  }
  double state_bytes(const Problem& p, int64_t) const override {
    return double(p.batch) * double(p.heads) * double(p.value_dim) * p.element_bytes() + 8;
  }
  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override {
    TORCH_CHECK(inputs.mask.causal);
    return means_of(inputs.v).index_select(2, rows);
  }
  std::optional<ExactAttention> exact_attention(const Inputs& inputs, const at::Tensor& rows) const override {
    auto exact = AttentionMethod::exact_attention(inputs, rows);
    if (flaw_ == Flaw::approximates) exact->output = 2 * reference(inputs, rows);
    return exact;
  }
  std::vector<DiagnosticSpec> diagnostic_specs() const override {
    return {{"last_row", "", "largest position among the requested rows"}};
  }
  std::vector<std::pair<std::string, double>> diagnostics(const Inputs& inputs, const at::Tensor& rows) const override {
    TORCH_CHECK(inputs.q.scalar_type() == at::kDouble);
    if (flaw_ == Flaw::approximates) return {{"last_row", double(rows.max().item<int64_t>())}};
    if (flaw_ == Flaw::unknown_diagnostic) return {{"last_rwo", 1.0}};
    return {};
  }

 protected:
  at::Tensor attend(const Inputs& inputs) override {
    ran("test");
    return means_of(inputs.v);
  }
  std::unique_ptr<DecodingState> make_state(const Problem& p) const override {
    auto state = std::make_unique<MeanState>();
    state->sum = at::zeros({p.batch, p.heads, 1, p.value_dim}, p.dtype);
    state->count = at::zeros({1}, at::kLong);
    if (flaw_ == Flaw::larger_state) state->reported.push_back(at::zeros({3}, at::kFloat));
    if (flaw_ == Flaw::keeps_more) state->unreported.push_back(at::zeros({1000}, at::kFloat));
    return state;
  }
  void absorb(DecodingState& state, const Inputs& tokens) override {
    auto& mean = static_cast<MeanState&>(state);
    const auto& v = tokens.v;
    mean.sum.add_(v.sum(2, /*keepdim=*/true));
    mean.count.add_(v.size(2));
    if (flaw_ == Flaw::keeps_the_inputs) mean.unreported.push_back(tokens.q);
    if (flaw_ == Flaw::wrong_extend && v.size(2) > 300) mean.sum.mul_(1.1);
  }
  at::Tensor decode(DecodingState& state, const Inputs& token) override {
    ran("test-step");
    ++steps;
    absorb(state, token);
    auto& mean = static_cast<MeanState&>(state);
    const auto output = mean.sum / mean.count;
    if (flaw_ == Flaw::wrong_step || (flaw_ == Flaw::wrong_late_step && state.position() >= 332)) return output * 1.01;
    if (flaw_ == Flaw::throws_in_step) TORCH_CHECK(false, "no luck with this token");
    return flaw_ == Flaw::nan_step ? output / 0. * 0. : output;
  }
  at::Tensor fill(DecodingState& state, const Inputs& tokens) override {
    if (flaw_ == Flaw::prefill_keeps_more) static_cast<MeanState&>(state).unreported.push_back(at::zeros({1000}, at::kFloat));
    const auto output = AttentionMethod::fill(state, tokens);
    return flaw_ == Flaw::wrong_prefill ? output * 1.01 : output;
  }

 private:
  static at::Tensor means_of(const at::Tensor& v) {
    return v.cumsum(2) / at::arange(1, v.size(2) + 1, v.options()).view({1, 1, -1, 1});
  }

  Flaw flaw_;
};

// Registers CausalMean under a name for the lifetime of the program.
struct RegisterCausalMean {
  RegisterCausalMean(const char* name, CausalMean::Flaw flaw) {
    RegisterMethod({name, "the mean of the values so far", "O(N)", "O(1)", {}, [flaw](const Options&) {
                      return std::make_shared<CausalMean>(flaw);
                    }});
  }
};

}  // namespace attn
