// Sets the parameters of each head from the tensors of a call.
#include "attn/linear/cpu/heads.h"

#include <ATen/ATen.h>

#include <cmath>

#include "attn/cpu/tensors.h"

namespace attn::cpu {

using at::Tensor;

LinearHeads::LinearHeads(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& key_lengths,
                         const FeatureMapSpec& map, double epsilon)
    : q_(with_dense_rows(q)), k_(with_dense_rows(k)), v_(with_dense_rows(v)) {
  common_.map = map.kind;
  common_.update = update_for(map.kind);
  common_.head_dim = q.size(3);
  common_.feature_count = make_feature_map(map)->count(common_.head_dim);
  if (map.projection) set_projection(*map.projection);
  common_.value_dim = v.size(3);
  common_.epsilon = epsilon;
  if (key_lengths) key_lengths_ = key_lengths->clamp(0, k.size(2)).contiguous();
}

void LinearHeads::set_gradients(const Tensor& grad_output, const Tensor& grad_normalizer, const Tensor& grad_q,
                                const Tensor& grad_k, const Tensor& grad_v) {
  grad_output_ = with_dense_rows(grad_output);
  grad_normalizer_ = grad_normalizer;
  grad_q_ = grad_q;
  grad_k_ = grad_k;
  grad_v_ = grad_v;
}

void LinearHeads::set_value_shift(const Tensor& shift) {
  value_shift_ = at::zeros({shift.size(0), shift.size(1), 1, padded_values()}, accumulator());
  value_shift_.narrow(3, 0, shift.size(2)).copy_(shift.unsqueeze(2));
}

LinearHeadParams LinearHeads::head(int64_t index) const {
  const auto rows = [&](const Tensor& x) { return rows_of_head(x, index); };
  auto params = common_;
  params.q = rows(q_);
  params.k = rows(k_);
  params.v = rows(v_);
  params.output = rows(output_);
  params.grad_output = rows(grad_output_);
  params.grad_q = rows(grad_q_);
  params.grad_k = rows(grad_k_);
  params.grad_v = rows(grad_v_);
  params.normalizer = rows(normalizer_).data;
  params.grad_normalizer = rows(grad_normalizer_).data;
  params.value_shift = rows(value_shift_).data;
  params.visible_keys = key_lengths_.defined() ? key_lengths_.const_data_ptr<int64_t>()[index / q_.size(1)] : key_len();
  return params;
}

void LinearHeads::set_projection(const Tensor& directions) {
  const auto scaled = (directions / std::pow(double(common_.head_dim), 0.25)).to(accumulator());
  const auto padded_copy = [&](const Tensor& x) {
    auto copy = at::zeros({x.size(0), padded(x.size(1))}, accumulator());
    copy.narrow(1, 0, x.size(1)).copy_(x);
    return copy;
  };
  projection_ = padded_copy(scaled);
  projection_transposed_ = padded_copy(scaled.t());
  common_.projection = projection_.const_data_ptr();
  common_.projection_transposed = projection_transposed_.const_data_ptr();
}

}  // namespace attn::cpu
