// A method for tests whose heads and batch entries differ: softmax attention in which head h of H subtracts from each logit the
// distance of query and key times 2^(−8(h + 1)/H), and whose output is multiplied by 1 + b in batch entry b.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <memory>
#include <vector>

#include "attn/registry.h"

namespace attn {

class HeadSlopes : public AttentionMethod {
 public:
  Capabilities capabilities() const override {
    Capabilities can;
    can.nan_reaches_its_rows_only = false;
    return can;
  }
  Cost cost(const Problem& p, Protocol) const override { return {1, 1, p.input_bytes()}; }

  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override {
    const auto batch = inputs.part ? inputs.part->batch : at::arange(inputs.q.size(0), rows.options());
    return output_of(inputs, rows, batch, inputs.head_indices(), inputs.heads_of_call());
  }

 protected:
  at::Tensor attend(const Inputs& inputs) override {
    ran("test");
    const auto positions = at::TensorOptions(at::kLong).device(inputs.q.device());
    const auto heads = inputs.q.size(1);
    return output_of(inputs, at::arange(inputs.q.size(2), positions), at::arange(inputs.q.size(0), positions),
                     at::arange(heads, positions), heads)
        .to(inputs.q.scalar_type());
  }

 private:
  // Computes in float32 or float64.
  static at::Tensor output_of(const Inputs& inputs, const at::Tensor& rows, const at::Tensor& batch, const at::Tensor& heads,
                              int64_t heads_of_call) {
    const auto dtype = inputs.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const auto key_len = inputs.k.size(2);
    const auto hidden_keys = inputs.mask.hidden_keys(key_len);
    const auto q = inputs.q.index_select(2, rows).to(dtype), k = zero_where(inputs.k, hidden_keys).to(dtype),
               v = zero_where(inputs.v, hidden_keys).to(dtype);
    const auto slopes = at::exp2((heads + 1).to(at::kDouble) * (-8. / double(heads_of_call))).to(dtype).view({-1, 1, 1});
    const auto distance = (rows.view({-1, 1}) - at::arange(key_len, rows.options())).abs().to(dtype);
    const auto hidden = inputs.mask.visible_pairs(rows, inputs.q.size(2), key_len).logical_not();
    const auto logits = at::matmul(q, k.transpose(2, 3)) / std::sqrt(double(q.size(3))) - slopes * distance;
    const auto max = logits.detach().masked_fill(hidden, -1e30).amax(-1, /*keepdim=*/true);
    const auto weights = (logits - max).masked_fill(hidden, -INFINITY).exp();
    const auto total = weights.sum(-1, /*keepdim=*/true);
    const auto shares = weights / total.masked_fill(total == 0, 1);
    return at::matmul(shares, v) * (batch + 1).to(dtype).view({-1, 1, 1, 1});
  }
};

inline const RegisterMethod head_slopes{
    {"test-head-slopes", "softmax attention whose heads and batch entries differ", "O(N²)", "O(N²)", {}, [](const Options&) {
       return std::make_shared<HeadSlopes>();
     }}};

}  // namespace attn
