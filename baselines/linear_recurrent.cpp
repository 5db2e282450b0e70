// linear-recurrent: causal linear attention computed token by token with the decoding state of linear. Its gradients are computed
// token by token as well ("Transformers are RNNs", 2006.16236, Algorithm 1), so that only one state is in memory at a time.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "attn/linear/composed.h"
#include "attn/linear/method.h"
#include "attn/registry.h"

namespace attn {
namespace {

using at::Tensor;

// The forward pass updates the state token by token. The backward pass is that of the composed causal form with chunks of one
// position.
class TokenByToken : public torch::autograd::Function<TokenByToken> {
 public:
  using Context = torch::autograd::AutogradContext;

  static Tensor forward(Context* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::optional<Tensor>& key_lengths) {
    const auto map = make_feature_map("elu");
    const auto dtype = map->accumulator_dtype(q.scalar_type());
    const auto rows = q.size(0) * q.size(1), length = q.size(2);
    const auto merged_q = q.flatten(0, 1), merged_k = k.flatten(0, 1), merged_v = v.flatten(0, 1);
    Tensor hidden;
    if (const auto keys = Mask{true, key_lengths}.hidden_keys(length))
      hidden = keys->expand({q.size(0), q.size(1), length, 1}).flatten(0, 1);
    const auto output = at::empty({q.size(0), q.size(1), length, v.size(3)}, q.options());
    const auto normalizer = at::empty({q.size(0), q.size(1), length, 1}, q.options().dtype(dtype));
    const auto merged_output = output.flatten(0, 1), merged_normalizer = normalizer.flatten(0, 1);
    auto state = LinearState::zeros(*map, rows, q.size(3), v.size(3), q.options().dtype(dtype));
    for (int64_t i = 0; i < length; ++i) {
      const auto token = [&](const Tensor& x) { return x.narrow(1, i, 1).to(dtype); };
      const auto is_hidden = hidden.defined() ? hidden.narrow(1, i, 1) : hidden;
      state.add(*map, token(merged_k), is_hidden.defined() ? token(merged_v).masked_fill(is_hidden, 0) : token(merged_v),
                is_hidden);
      const auto result = read(state, *map, token(merged_q), kLinearEpsilon);
      merged_output.narrow(1, i, 1).copy_(result.output);
      merged_normalizer.narrow(1, i, 1).copy_(result.normalizer);
    }
    context->save_for_backward({q, k, v, normalizer, key_lengths.value_or(Tensor())});
    return output;
  }

  static torch::autograd::variable_list backward(Context* context, torch::autograd::variable_list grad_outputs) {
    const auto saved = context->get_saved_variables();
    const auto key_lengths = saved[4].defined() ? std::optional(saved[4]) : std::nullopt;
    const auto [grad_q, grad_k, grad_v] = composed_linear_backward(
        {saved[0], saved[1], saved[2], /*causal=*/true, key_lengths, {FeatureMapKind::elu}, kLinearEpsilon}, grad_outputs[0],
        saved[3], /*chunk=*/1);
    return {grad_q, grad_k, grad_v, {}};
  }
};

class LinearRecurrent : public LinearMethod {
 public:
  LinearRecurrent() : LinearMethod("elu", 1) {}

  Capabilities capabilities() const override {
    auto can = LinearMethod::capabilities();
    can.full = can.cross_attention = false;
    return can;
  }

 protected:
  Tensor attend(const Inputs& inputs) override {
    ran("aten/recurrent");
    return TokenByToken::apply(inputs.q, inputs.k, inputs.v, inputs.mask.key_lengths);
  }
};

const RegisterMethod registered{
    entry_of<LinearRecurrent>("linear-recurrent", "causal linear attention, computed token by token", "O(N)", "O(N)")};

}  // namespace
}  // namespace attn
