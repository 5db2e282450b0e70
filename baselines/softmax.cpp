// softmax: softmax(qkᵀ/√D + mask) v with the matrix of scores materialised, as the paper's Figure 1 measured it.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "attn/reference.h"
#include "attn/registry.h"

namespace attn {
namespace {

class Softmax : public AttentionMethod {
 public:
  Cost cost(const Problem& p, Protocol protocol) const override {
    const double scores = p.score_count();
    const double forward = scores * (2 * double(p.head_dim) + 2 * double(p.value_dim) + 5);
    const double matrix = scores * p.element_bytes();
    // A mask keeps one byte a pair: [N,L] when causal alone, [B,N,L] with key lengths.
    const double pairs = double(p.query_len) * double(p.key_len);
    const double mask =
        p.key_lengths.is_full() ? (p.causal ? pairs : 0) : double(p.batch) * (p.causal ? pairs : double(p.key_len));
    const double masked_inputs = p.key_lengths.is_full() ? 0 : p.key_bytes() + p.value_bytes();
    const double kept = p.input_bytes() + p.output_bytes() + mask + masked_inputs + p.query_bytes();
    // Forward holds scores and weights; backward the weights, their gradient and the scores' gradient.
    if (protocol == Protocol::forward) return {forward, p.input_bytes() + p.output_bytes(), kept + 2 * matrix};
    return {forward * 3, 2 * (p.input_bytes() + p.output_bytes()) + p.input_bytes(),
            kept + p.input_bytes() + p.output_bytes() + 3 * matrix};
  }

  at::Tensor reference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                       const at::Tensor& rows) const override {
    return reference::softmax(q, k, v, mask, rows);
  }

 protected:
  at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask) override {
    ran("aten/materialised");
    const auto hidden_keys = mask.hidden_keys(k.size(2));
    const auto scale = 1 / std::sqrt(double(q.size(3)));
    auto scores = at::matmul(q * scale, zero_where(k, hidden_keys).transpose(2, 3));
    // The product's gradient does not need its result, so it may be overwritten.
    if (const auto hidden = mask.hidden_pairs(q.size(2), k.size(2), q.device())) scores.masked_fill_(*hidden, -INFINITY);
    // A row of -inf alone would be NaN; such an entry is evened out here and its output zeroed below.
    const auto empty = mask.empty_entries();
    if (empty) scores.masked_fill_(*empty, 0);
    const auto weights = at::softmax(scores, -1);
    scores.reset();
    return zero_where(at::matmul(weights, zero_where(v, hidden_keys)), empty);
  }
};

const RegisterMethod registered{entry_of<Softmax>("softmax", "softmax attention, scores materialised", "O(N²)", "O(N²)")};

}  // namespace
}  // namespace attn
