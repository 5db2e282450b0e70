// sliding-window: softmax attention in which query i sees the last `window` keys up to itself, i - window + 1 … i.
#include <ATen/ATen.h>

#include <cmath>

#include "attn/plugin.h"
#include "attn/registry.h"

namespace {

class SlidingWindow : public attn::AttentionMethod {
 public:
  explicit SlidingWindow(const attn::Options& options) : window_(options.integer("window")) {}

  attn::Capabilities capabilities() const override {
    attn::Capabilities can;
    can.full = can.cross_attention = can.key_lengths = false;
    return can;
  }

  // A chunk of `window` queries sees 2 · window keys. At their peak, there are two matrices of scores: the scores and the weights
  // or, in the backward pass, the weights and their gradients.
  attn::Cost cost(const attn::Problem& p, attn::Protocol protocol) const override {
    const bool backward = protocol == attn::Protocol::forward_backward;
    const double scores = double(p.batch * p.heads) * double(p.query_len + window_) * 2 * double(window_);
    const double flops = 2 * scores * double(p.head_dim + p.value_dim);
    const double bytes = p.input_bytes() + p.output_bytes();
    return {.flops = backward ? 3 * flops : flops,
            .min_bytes = backward ? 2 * bytes : bytes,
            .peak_bytes = 4 * bytes + (backward ? 3 : 2) * scores * p.element_bytes()};
  }

  at::Tensor reference(const attn::Inputs& inputs, const at::Tensor& rows) const override {
    const auto distance = rows.unsqueeze(1) - at::arange(inputs.k.size(2));
    const auto hidden = (distance < 0).logical_or(distance >= window_);
    const auto scores = at::matmul(inputs.q.index_select(2, rows), inputs.k.transpose(2, 3)) / std::sqrt(inputs.q.size(3));
    return at::matmul(at::softmax(scores.masked_fill(hidden, -INFINITY), -1), inputs.v);
  }

 protected:
  at::Tensor attend(const attn::Inputs& inputs) override {
    ran("aten/chunked");
    const auto length = inputs.q.size(2), chunks = (length + window_ - 1) / window_;
    // The sequence is padded to whole chunks, and the keys and values also with a chunk of zeros before the first.
    const auto whole = chunks * window_ - length;
    const auto chunked = [&](const at::Tensor& x) {
      return at::constant_pad_nd(x, {0, 0, 0, whole}).unflatten(2, {chunks, window_});
    };
    const auto with_chunk_before = [&](const at::Tensor& x) {
      const auto padded = at::constant_pad_nd(x, {0, 0, window_, whole}).unflatten(2, {chunks + 1, window_});
      return at::cat({padded.narrow(2, 0, chunks), padded.narrow(2, 1, chunks)}, 3);
    };
    const auto scale = 1 / std::sqrt(double(inputs.q.size(3)));
    auto scores = at::matmul(chunked(inputs.q) * scale, with_chunk_before(inputs.k).transpose(3, 4));
    // Query i of a chunk is at position window + i of the keys that the chunk sees.
    const auto options = at::TensorOptions(at::kLong).device(inputs.q.device());
    const auto key = at::arange(2 * window_, options), query = at::arange(window_, options).unsqueeze(1) + window_;
    const auto chunk = at::arange(chunks, options).view({chunks, 1, 1});
    const auto hidden = (key > query).logical_or(key <= query - window_).logical_or((chunk == 0).logical_and(key < window_));
    scores = scores.masked_fill(hidden, -INFINITY);
    const auto output = at::matmul(at::softmax(scores, -1), with_chunk_before(inputs.v));
    return output.flatten(2, 3).narrow(2, 0, length).contiguous();
  }

 private:
  int64_t window_;
};

const attn::RegisterMethod registered{
    attn::entry_of<SlidingWindow>("sliding-window", "softmax attention over the last keys of a window", "O(N)", "O(N)",
                                  {{"window", int64_t{128}, "keys that a query sees, with its own"}})};

}  // namespace

ATTNBENCH_PLUGIN;
