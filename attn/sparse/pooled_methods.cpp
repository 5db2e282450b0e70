// Registers methods that average blocks of keys. pooled-kv is softmax attention over the means of earlier blocks and the
// positions of a query's own block. topk-pooled is exact attention over the blocks whose mean keys have the largest products with
// a query.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "attn/reference.h"
#include "attn/registry.h"
#include "attn/sparse/pooled_choice.h"
#include "attn/sparse/sparse_attention.h"
#include "attn/sparse/sparse_method.h"

namespace attn {
namespace {

using at::Tensor;

// What both methods share.
class PooledMethod : public SparseMethod {
 public:
  explicit PooledMethod(const Options& options) : SparseMethod(options, ValueHeads::as_keys), block_(options.integer("block")) {}

  Capabilities capabilities() const override {
    Capabilities can;
    can.shared_heads = SharedHeads::read;
    can.nan_reaches_its_rows_only = false;  // A NaN at one position makes the mean of its block NaN.
    return can;
  }

 protected:
  int64_t block_;
};

OptionSpec block_option(int64_t block) { return {"block", block, "number of positions of a block", {}, 1, 4096}; }

// ---------------------------------------------------------------- topk-pooled

class TopkPooled : public PooledMethod {
 public:
  explicit TopkPooled(const Options& options) : PooledMethod(options), top_(options.integer("top")) {}

  Capabilities capabilities() const override {
    auto can = PooledMethod::capabilities();
    can.causal_cross_attention = true;
    return can;
  }

  Cost cost(const Problem& p, Protocol protocol) const override {
    const double rows = double(p.batch) * double(p.output_head_count()) * double(p.query_len);
    const double blocks = std::ceil(double(p.key_len) / double(block_)), chosen = double(top_ + 1);
    // Early causal rows have fewer blocks than `chosen`, and on average half of a row's own block comes after it.
    const double seen = p.causal ? std::min(chosen - 0.5, blocks / 2) : std::min(chosen, blocks);
    auto cost = cost_of_pairs(p, rows * seen * double(block_), /*joins_parts=*/true, protocol == Protocol::forward_backward);
    cost.flops += 2 * rows * blocks * double(p.head_dim) * (p.causal ? 0.5 : 1);
    // The chosen blocks of each query, and the queries sorted by block.
    cost.peak_bytes += 2 * rows * chosen * double(sizeof(int64_t));
    return cost;
  }

  Tensor reference(const Inputs& inputs, const Tensor& rows) const override {
    const auto key_len = inputs.k.size(2);
    const auto pooled = pooled_blocks(inputs.k, block_, inputs.mask.key_lengths, at::kDouble).detach();
    const auto begins = at::arange(pooled.size(2), rows.options()).mul(block_).view({1, 1, 1, -1});
    const auto places = rows.view({1, 1, -1, 1}) + (key_len - inputs.q.size(2));
    const auto own = begins.le(places).logical_and(begins + block_ > places);
    auto hidden = own.logical_or(inputs.mask.causal ? begins > places : at::zeros_like(own));
    if (const auto& lengths = inputs.mask.key_lengths) hidden = hidden.logical_or(begins >= lengths->view({-1, 1, 1, 1}));
    const auto products = at::matmul(inputs.q.detach().index_select(2, rows), pooled.transpose(2, 3));
    const auto [sorted, order] = products.masked_fill(hidden, -INFINITY).sort(/*stable=*/true, /*dim=*/-1, /*descending=*/true);
    const auto count = std::min(top_, pooled.size(2));
    const auto chosen =
        own.expand_as(products).clone().scatter(3, order.narrow(3, 0, count), sorted.narrow(3, 0, count).isinf().logical_not());
    // The scatter may have set a row's own block to false, because it is hidden among the candidates.
    const auto of_keys = chosen.logical_or(own).index_select(3, at::arange(key_len, rows.options()).div(block_, "floor"));
    const auto visible = of_keys.logical_and(inputs.mask.visible_pairs(rows, inputs.q.size(2), key_len));
    return reference::softmax_of_pairs(inputs, rows, visible);
  }

 protected:
  Tensor attend(const Inputs& inputs) override {
    const auto name = run(inputs);
    const auto& mask = inputs.mask;
    const auto chosen = choose_blocks(inputs.q, inputs.k, mask.causal, mask.key_lengths, block_, top_);
    return std::get<0>(sparse_attention(inputs.q, inputs.k, inputs.v,
                                        {.causal = mask.causal,
                                         .key_lengths = mask.key_lengths,
                                         .chosen_blocks = chosen,
                                         .block = block_,
                                         .implementation = name}));
  }

 private:
  int64_t top_;
};

// ---------------------------------------------------------------- pooled-kv

class PooledKv : public PooledMethod {
 public:
  using PooledMethod::PooledMethod;

  Capabilities capabilities() const override {
    auto can = PooledMethod::capabilities();
    can.key_lengths = false;  // The mean of a partly valid block would come after positions that are not valid.
    return can;
  }

  Cost cost(const Problem& p, Protocol protocol) const override {
    const bool backward = protocol == Protocol::forward_backward;
    const double blocks = std::ceil(double(p.key_len) / double(block_));
    const double rows = double(p.batch) * double(p.output_head_count()) * double(p.query_len);
    auto problem = p;
    if (!p.causal) {
      problem.key_len = int64_t(blocks);
      auto cost = cost_of_pairs(problem, rows * blocks, /*joins_parts=*/false, backward);
      // The inputs are read and, in the backward pass, their gradients are written; means of bfloat16 are computed in float32.
      const double inputs = p.key_bytes() + p.value_bytes(), pooled = problem.key_bytes() + problem.value_bytes();
      const double widened = p.element_bytes() < 4 ? 4 / p.element_bytes() : 0;
      cost.min_bytes += (backward ? 2 : 1) * (inputs - pooled);
      cost.peak_bytes += (backward ? 2 : 1) * (inputs + pooled) + std::max(p.key_bytes(), p.value_bytes()) * widened;
      return cost;
    }
    // Each block has one more position, for its mean.
    problem.query_len = problem.key_len = int64_t(blocks) * (block_ + 1);
    auto cost = cost_of_pairs(problem, rows * (blocks / 2 + double(block_) / 2), /*joins_parts=*/true, backward);
    cost.min_bytes += (backward ? 3 : 1) * (p.input_bytes() - problem.input_bytes());
    cost.peak_bytes += (backward ? 2 : 1) * (p.input_bytes() + p.output_bytes());
    return cost;
  }

  Tensor reference(const Inputs& inputs, const Tensor& rows) const override {
    const auto keys = pooled_blocks(inputs.k, block_, std::nullopt, at::kDouble);
    const auto values = pooled_blocks(inputs.v, block_, std::nullopt, at::kDouble);
    const auto begins = at::arange(keys.size(2), rows.options()).mul(block_).view({1, 1, 1, -1});
    const auto places = rows.view({1, 1, -1, 1});
    if (!inputs.mask.causal) return reference::softmax_of_pairs({inputs.q, keys, values}, rows, begins.ge(0));
    const auto earlier = begins + block_ <= places.div(block_, "floor").mul(block_);
    // The keys are the means of all blocks and, after them, all positions, of which a row sees those of its own block up to
    // itself.
    const auto positions = at::arange(inputs.k.size(2), rows.options()).view({1, 1, 1, -1});
    const auto own = positions.div(block_, "floor").eq(places.div(block_, "floor")).logical_and(positions <= places);
    return reference::softmax_of_pairs({inputs.q, at::cat({keys, inputs.k}, 2), at::cat({values, inputs.v}, 2)}, rows,
                                       at::cat({earlier, own}, 3));
  }

 protected:
  Tensor attend(const Inputs& inputs) override {
    const auto name = run(inputs);
    const auto dtype = accumulator_dtype(inputs.q.scalar_type());
    const auto pooled = [&](const Tensor& x) { return pooled_blocks(x, block_, std::nullopt, dtype).to(x.scalar_type()); };
    const auto keys = pooled(inputs.k), values = pooled(inputs.v);
    if (!inputs.mask.causal) return std::get<0>(sparse_attention(inputs.q, keys, values, {.implementation = name}));
    // The mean of each block is inserted after it. With a block pattern a position then sees its own block up to itself, and the
    // last position of each earlier block, which is its mean. The queries at these positions are zeros, and their outputs are not
    // used.
    const auto length = inputs.q.size(2), blocks = keys.size(2);
    const auto with_means = [&](const Tensor& x, const Tensor& means) {
      const auto padded = blocks * block_ > length ? at::constant_pad_nd(x, {0, 0, 0, blocks * block_ - length}) : x;
      const auto of_blocks = padded.reshape({x.size(0), x.size(1), blocks, block_, x.size(3)});
      return at::cat({of_blocks, means.unsqueeze(3)}, 3).flatten(2, 3);
    };
    const auto queries = with_means(
        inputs.q, at::zeros({1}, inputs.q.options()).expand({inputs.q.size(0), inputs.q.size(1), blocks, inputs.q.size(3)}));
    const auto output = std::get<0>(
        sparse_attention(queries, with_means(inputs.k, keys), with_means(inputs.v, values),
                         {.causal = true, .pattern = "block:" + std::to_string(block_ + 1) + "/1", .implementation = name}));
    return output.view({output.size(0), output.size(1), blocks, block_ + 1, output.size(3)})
        .narrow(3, 0, block_)
        .flatten(2, 3)
        .narrow(2, 0, length);
  }
};

const RegisterMethod registered_topk{entry_of<TopkPooled>(
    "topk-pooled", "exact attention over the own block and the blocks whose mean keys have the largest products with a query",
    "O(N²)", "O(N)",
    {block_option(64),
     {"top", int64_t{8}, "number of blocks that are chosen beside the own one", {}, 0, 4096},
     implementation_option({"avx512", "avx2", "neon", "portable"})})};
const RegisterMethod registered_pooled{entry_of<PooledKv>(
    "pooled-kv",
    "softmax attention over means of blocks of keys and values; causally, over those of earlier blocks and the "
    "positions of the own one",
    "O(N²)", "O(N)", {block_option(32), implementation_option({"avx512", "avx2", "neon", "portable"})})};

}  // namespace
}  // namespace attn
