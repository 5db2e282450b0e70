// linformer: softmax attention over keys and values that are projected from key_len positions to `rank` positions (Linformer,
// arXiv 2006.04768): softmax(q (Eᵀk)ᵀ/√D) (Fᵀv). E and F [max_length, rank] are drawn once, and their first key_len rows are
// used. Hidden keys and values are set to zero before the projection.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>

#include "attn/reference.h"
#include "attn/registry.h"

namespace attn {
namespace {

class Linformer : public AttentionMethod {
 public:
  explicit Linformer(const Options& options)
      : rank_(options.integer("rank")), max_length_(options.integer("max_length")), seed_(options.integer("seed")) {}

  Capabilities capabilities() const override {
    Capabilities can;
    can.causal = false;
    can.learned = true;  // the projections
    return can;
  }

  std::optional<std::string> why_unsupported(const Problem& problem, Protocol protocol) const override {
    if (problem.key_len > max_length_)
      return label() + " projects at most max_length = " + std::to_string(max_length_) + " keys, not " +
             std::to_string(problem.key_len);
    return AttentionMethod::why_unsupported(problem, protocol);
  }

  Cost cost(const Problem& p, Protocol protocol) const override {
    const double rows = double(p.batch) * double(p.heads), rank = double(rank_), dims = double(p.head_dim + p.value_dim);
    const double forward = rows * rank * (2 * dims * double(p.key_len + p.query_len) + 5 * double(p.query_len));
    const bool backward = protocol == Protocol::forward_backward;
    const double projections = 2 * double(p.key_len) * rank * p.element_bytes(), min_bytes = p.input_bytes() + p.output_bytes();
    const double scores = rows * double(p.query_len) * rank * p.element_bytes();
    const double masked = p.key_lengths.is_full() || !backward ? 0 : p.key_bytes() + p.value_bytes();
    return {backward ? 3 * forward : forward, backward ? 2 * min_bytes + p.input_bytes() + projections : min_bytes + projections,
            p.input_bytes() + p.query_bytes() + p.output_bytes() * (backward ? 2 : 1) + masked + (backward ? 3 : 2) * scores +
                (backward ? p.input_bytes() : 0)};
  }

  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override {
    const auto key_len = inputs.k.size(2);
    const auto hidden_keys = inputs.mask.hidden_keys(key_len);
    const auto options = inputs.k.options();
    const auto keys = at::matmul(projection(0, key_len).to(options).t(), zero_where(inputs.k, hidden_keys));
    const auto values = at::matmul(projection(1, key_len).to(options).t(), zero_where(inputs.v, hidden_keys));
    return reference::softmax({inputs.q, keys, values}, rows);
  }

 protected:
  at::Tensor attend(const Inputs& inputs) override {
    ran("aten/matmul");
    const auto hidden_keys = inputs.mask.hidden_keys(inputs.k.size(2));
    const auto keys = project(converted(0, inputs.k), zero_where(inputs.k, hidden_keys));
    const auto values = project(converted(1, inputs.v), zero_where(inputs.v, hidden_keys));
    const auto scores = at::matmul(inputs.q / std::sqrt(double(inputs.q.size(3))), keys.transpose(2, 3));
    return at::matmul(at::softmax(scores, -1), values);
  }

 private:
  // E (which = 0) or F (which = 1) for `length` keys: float64 [length, rank], normal with variance 1/rank. Rows are drawn in
  // order, so that the projection for a shorter length is a slice of the one for a longer length; the longest one so far is
  // cached.
  at::Tensor projection(int which, int64_t length) const {
    auto& drawn = drawn_[which];
    if (!drawn.defined() || drawn.size(0) < length) {
      const auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t(2 * seed_ + which));
      std::vector<at::Tensor> blocks;
      for (int64_t done = 0; done < length; done += kBlock)
        blocks.push_back(at::randn({kBlock, rank_}, generator, at::TensorOptions(at::kDouble)));
      // Rounded to float32, as the parameters of a model are.
      drawn = (at::cat(blocks) / std::sqrt(double(rank_))).to(at::kFloat).to(at::kDouble);
    }
    return drawn.narrow(0, 0, length);
  }
  // projectionᵀ x as [B,H,rank,dim] for x [B,H,L,dim]. at::matmul would copy the projection for each batch entry and head.
  static at::Tensor project(const at::Tensor& projection, const at::Tensor& x) {
    const auto rows = x.flatten(0, 1);
    return at::bmm(projection.t().expand({rows.size(0), projection.size(1), projection.size(0)}), rows)
        .view({x.size(0), x.size(1), projection.size(1), x.size(3)});
  }
  // projection() in the dtype and on the device of `like`, cached for its length.
  at::Tensor converted(int which, const at::Tensor& like) {
    auto& cached = converted_[which];
    if (!cached.defined() || cached.size(0) != like.size(2) || cached.scalar_type() != like.scalar_type() ||
        cached.device() != like.device())
      cached = projection(which, like.size(2)).to(like.options());
    return cached;
  }

  static constexpr int64_t kBlock = 256;
  int64_t rank_, max_length_, seed_;
  mutable at::Tensor drawn_[2];
  at::Tensor converted_[2];
};

const RegisterMethod registered{
    entry_of<Linformer>("linformer", "softmax over keys and values projected to a fixed length", "O(N)", "O(N)",
                        {{"rank", int64_t{256}, "number of positions that keys and values are projected to", {}, 1},
                         {"max_length", int64_t{65536}, "maximum number of keys", {}, 1},
                         {"seed", int64_t{0}, "seed of the projections", {}, 0, kMaxSeed}})};

}  // namespace
}  // namespace attn
