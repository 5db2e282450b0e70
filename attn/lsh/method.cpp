// lsh, lsh-1, lsh-4, lsh-8: Reformer's LSH attention (2001.04451) in 1, 4 or 8 rounds, over the operator of
// attn/lsh/lsh_attention.h. Queries and keys are one: qk is q, and k is ignored.
//
// Decoding recomputes, as the paper ran it: a step is the last row of the causal forward over the prefix. It is not that row of
// the causal forward over a longer sequence, because later tokens move the borders of the sorted chunks.
// lsh-composed: the same, composed of ATen operations.
#include "attn/lsh/lsh_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/cpu/call.h"
#include "attn/cpu/instruction_set.h"
#include "attn/lsh/implementation.h"
#include "attn/registry.h"

namespace attn {
namespace {

constexpr double kOwnPositionPenalty = 1e5;
constexpr int64_t kTopKeys = 16;
constexpr const char* kComposed = "composed";

// softmax of logits [B,H,R,N], each key counted `times` (0 hides it); zeros where a row has no key.
at::Tensor softmax_over(const at::Tensor& logits, const at::Tensor& times) {
  const auto hidden = times == 0;
  const auto largest = logits.detach().masked_fill(hidden, -std::numeric_limits<double>::max()).amax(-1, /*keepdim=*/true);
  const auto weights = (logits - largest).masked_fill(hidden, -INFINITY).exp() * times;
  const auto total = weights.sum(-1, /*keepdim=*/true);
  return weights / total.masked_fill(total == 0, 1);
}

class LshState : public DecodingState {
 public:
  explicit LshState(const Problem& p)
      : qk(at::zeros({p.batch, p.heads, p.key_len, p.head_dim}, at::TensorOptions(p.dtype).device(p.device))),
        v(at::zeros({p.batch, p.heads, p.key_len, p.value_dim}, qk.options())) {}

  at::Tensor qk, v;  // the first position() tokens of key_len

 protected:
  std::vector<at::Tensor> tensors() const override { return {qk, v}; }
};

class Lsh : public AttentionMethod {
 public:
  explicit Lsh(const Options& options)
      : rounds_(options.integer("rounds")),
        profile_(options.text("profile")),
        trax_(profile_ == kTrax),
        chunk_(options.integer("chunk")),
        buckets_(options.integer("buckets")),
        seed_(uint64_t(options.integer("seed"))),
        kernel_(options.text("kernel")) {
    if (kernel_ != kComposed && kernel_ != "cuda") kernels::choose_instruction_set(kernel_);
    TORCH_CHECK_VALUE(buckets_ % 2 == 0, "lsh: buckets = ", buckets_, ", expected an even number, or 0 for the profile's own");
    if (chunk_ == 0) chunk_ = trax_ ? 64 : 32;
  }

  Capabilities capabilities() const override {
    Capabilities can;
    can.cross_attention = false;
    can.decoding = true;
    can.steps_are_rows_of_forward = false;
    return can;
  }

  std::optional<std::string> why_unsupported(const Problem& p, Protocol protocol) const override {
    if (auto reason = AttentionMethod::why_unsupported(p, protocol)) return reason;
    if (auto reason = kernels::why_no_kernel(label(), kernel_, p.dtype, p.device)) return reason;
    return kernels::refusal(label(), [&] { kernels::find_lsh({kernel_, p.dtype, p.device, p.head_dim, p.value_dim}); });
  }

  Cost cost(const Problem& problem, Protocol protocol) const override {
    if (protocol == Protocol::forward || protocol == Protocol::forward_backward)
      return cost_of(problem, protocol == Protocol::forward_backward, buckets_for(problem.query_len));
    // Decoding runs the forward over the prefix that its state holds, for one row of it.
    auto prefix = problem;
    if (protocol == Protocol::decode) prefix.key_len = prefix.query_len = problem.query_len + 1;
    auto cost = cost_of(prefix, /*backward=*/false, buckets_for(prefix.key_len));
    const auto state = state_bytes(prefix, prefix.key_len);
    cost.peak_bytes += state;
    if (protocol == Protocol::prefill) {
      cost.min_bytes += state;
    } else {
      const double tokens = double(prefix.query_len);
      cost.min_bytes = state + (prefix.input_bytes() + prefix.output_bytes()) / tokens;
      cost.peak_bytes -= prefix.input_bytes() * (1 - 1 / tokens);
    }
    return cost;
  }

  // Preallocated for key_len tokens, whatever the position.
  double state_bytes(const Problem& problem, int64_t) const override { return problem.query_bytes() + problem.value_bytes(); }

  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override {
    const auto& q = inputs.q;
    const auto& mask = inputs.mask;
    const auto length = q.size(2);
    const auto chunks = chunks_of(buckets_of(q), mask.key_lengths);
    const auto allowed = mask.visible_pairs(rows, length);
    const auto logits = exact_logits(q, mask, rows);
    const auto values = zero_where(inputs.v, mask.hidden_keys(length));
    // Weighting rounds by their log-sum-exp is one softmax over all that is seen in any of them.
    if (trax_) {
      auto times = seen_times(chunks, rows, 0).mul(allowed);
      for (int64_t r = 1; r < rounds_; ++r) times = times + seen_times(chunks, rows, r).mul(allowed);
      return at::matmul(softmax_over(logits, times), values);
    }
    auto sum = at::matmul(softmax_over(logits, seen_times(chunks, rows, 0).mul(allowed)), values);
    for (int64_t r = 1; r < rounds_; ++r)
      sum = sum + at::matmul(softmax_over(logits, seen_times(chunks, rows, r).mul(allowed)), values);
    return sum / double(rounds_);
  }

  std::optional<at::Tensor> approximated(const Inputs& inputs, const at::Tensor& rows) const override {
    const auto& mask = inputs.mask;
    const auto length = inputs.q.size(2);
    const auto allowed = mask.visible_pairs(rows, length).to(at::kDouble);
    return at::matmul(softmax_over(exact_logits(inputs.q, mask, rows), allowed), zero_where(inputs.v, mask.hidden_keys(length)));
  }

  std::vector<DiagnosticSpec> diagnostic_specs() const override {
    return {{"lsh_bucket_mean", "", "mean number of keys in a bucket, over the buckets that hold any"},
            {"lsh_bucket_skew", "", "keys in the fullest bucket over the keys in a bucket if all held equally many"},
            {"lsh_top16_share", "",
             "share of the 16 keys with the largest logits that are among the candidates of a query in some round; mean over the "
             "checked rows that may see any key"},
            {"lsh_mass_covered", "",
             "share of the exact softmax weights that lies on the candidates of a query; mean over the checked rows that may see "
             "any key"}};
  }

  std::vector<std::pair<std::string, double>> diagnostics(const Inputs& inputs, const at::Tensor& rows) const override {
    const at::NoGradGuard no_grad;
    const auto& q = inputs.q;
    const auto& mask = inputs.mask;
    const auto length = q.size(2);
    const auto buckets = buckets_of(q);
    auto figures = occupancy(buckets, mask, length);

    const auto chunks = chunks_of(buckets, mask.key_lengths);
    const auto allowed = mask.visible_pairs(rows, length);
    auto seen = seen_times(chunks, rows, 0) > 0;
    for (int64_t r = 1; r < rounds_; ++r) seen.logical_or_(seen_times(chunks, rows, r) > 0);
    const auto logits = exact_logits(q, mask, rows);

    const auto mean_over = [](const at::Tensor& value, const at::Tensor& counted) {
      return value.masked_select(counted).mean().item<double>();
    };
    auto eligible = allowed;
    if (trax_) eligible = eligible.logical_and(own_position(rows, length).logical_not());
    eligible = eligible.expand_as(logits);
    const auto [top, keys] = logits.masked_fill(eligible.logical_not(), -INFINITY).topk(std::min(kTopKeys, length), -1);
    const auto is_key = top > -INFINITY;
    const auto found = seen.gather(-1, keys).logical_and(is_key).sum(-1).to(at::kDouble), wanted = is_key.sum(-1);
    if (const auto some = wanted > 0; some.any().item<bool>())
      figures.emplace_back("lsh_top16_share", mean_over(found / wanted, some));
    if (const auto some = allowed.expand_as(logits).any(-1); some.any().item<bool>()) {
      const auto covered = softmax_over(logits, allowed.to(at::kDouble)).mul(seen).sum(-1);
      figures.emplace_back("lsh_mass_covered", mean_over(covered, some));
    }
    return figures;
  }

 protected:
  at::Tensor attend(const Inputs& inputs) override {
    return attend_with(buckets_for(inputs.q.size(2)), inputs.q, inputs.v, inputs.mask);
  }

  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override { return std::make_unique<LshState>(problem); }

  void absorb(DecodingState& state, const Inputs& tokens) override {
    auto& kept = static_cast<LshState&>(state);
    kept.qk.narrow(2, state.position(), tokens.q.size(2)).copy_(tokens.q);
    kept.v.narrow(2, state.position(), tokens.v.size(2)).copy_(tokens.v);
  }

  at::Tensor decode(DecodingState& state, const Inputs& token) override {
    absorb(state, token);
    auto& kept = static_cast<LshState&>(state);
    const auto prefix = state.position() + 1;
    const auto output =
        attend_with(buckets_for(prefix), kept.qk.narrow(2, 0, prefix), kept.v.narrow(2, 0, prefix), {.causal = true});
    return output.narrow(2, prefix - 1, 1).clone();  // not a view that keeps the other rows alive
  }

  at::Tensor fill(DecodingState& state, const Inputs& tokens) override {
    absorb(state, tokens);
    return attend(tokens);
  }

 private:
  int64_t buckets_for(int64_t length) const {
    if (buckets_ > 0) return buckets_;
    return trax_ ? 2 * ((length + chunk_ - 1) / chunk_) : 64;
  }

  at::Tensor attend_with(int64_t buckets, const at::Tensor& qk, const at::Tensor& v, const Mask& mask) {
    const auto* own = kernels::find_lsh({kernel_, qk.scalar_type(), qk.device().type(), qk.size(3), v.size(3)});
    ran(own ? "kernel/" + own->name() : "aten/sorted chunks");
    // The same seed gives the same rotations, so one drawing serves all calls: it needs the CPU and a copy to the device.
    if (!rotations_.defined() || rotations_.size(0) != qk.size(3) || rotations_.device() != qk.device() ||
        rotated_buckets_ != buckets) {
      rotations_ = draw_rotations(qk.size(3), rounds_, buckets, seed_, qk.device());
      rotated_buckets_ = buckets;
    }
    const auto factors = bucket_factors_of(buckets);
    return lsh_attention(qk, v, rotations_, chunk_, mask.causal, mask.key_lengths, profile_, at::OptionalIntArrayRef(factors),
                         kernel_);
  }

  // ------------------------------------------------------------ definition, in float64

  at::Tensor buckets_of(const at::Tensor& q) const {
    const auto buckets = buckets_for(q.size(2));
    const auto factors = bucket_factors_of(buckets);
    return lsh_buckets(q, draw_rotations(q.size(3), rounds_, buckets, seed_, q.device()), at::OptionalIntArrayRef(factors));
  }

  // The chunk of every position in every round, int64 [B,H,rounds,N].
  at::Tensor chunks_of(const at::Tensor& buckets, const std::optional<at::Tensor>& key_lengths) const {
    const auto length = buckets.size(3);
    const auto positions = at::arange(length, buckets.options());
    auto sort_keys = buckets * length + positions;
    if (key_lengths) {
      const auto hidden = positions >= key_lengths->view({-1, 1, 1, 1});
      sort_keys = at::where(hidden, std::numeric_limits<int64_t>::max() / 2 + positions, sort_keys);
    }
    const auto places = sort_keys.argsort(int64_t{-1}).argsort(int64_t{-1});
    return places.floor_divide(std::min(chunk_, length));
  }

  // How often each of `rows` meets each key's place in round r, masks aside: float64 [B,H,R,N].
  at::Tensor seen_times(const at::Tensor& chunks, const at::Tensor& rows, int64_t r) const {
    const auto length = chunks.size(3), last = (length - 1) / std::min(chunk_, length);
    const auto here = chunks.select(2, r).unsqueeze(2), row = here.index_select(3, rows).transpose(2, 3);
    auto times = here.eq(row).to(at::kDouble) + here.eq(row - 1);
    if (trax_ && rounds_ * (last + 1) > 1) {
      const auto before = chunks.select(2, (r + rounds_ - 1) % rounds_).unsqueeze(2);
      times = times + before.eq(last).logical_and(row.eq(0));
    }
    return times;
  }

  static at::Tensor own_position(const at::Tensor& rows, int64_t length) {
    return at::arange(length, rows.options()).view({1, 1, 1, -1}) == rows.view({1, 1, -1, 1});
  }

  // Logits of `rows` and all keys [B,H,R,N], the own position put behind all others where the profile says so.
  at::Tensor exact_logits(const at::Tensor& q, const Mask& mask, const at::Tensor& rows) const {
    const auto x = zero_where(q, mask.hidden_keys(q.size(2)));
    const auto squares = x.square().sum(-1, /*keepdim=*/true);
    const auto zero = squares == 0;
    const auto keys = trax_ ? x * (squares / double(q.size(3)) + 1e-6).rsqrt() : x * squares.masked_fill(zero, 1).rsqrt();
    const auto logits = at::matmul(q.index_select(2, rows), keys.transpose(2, 3)) / std::sqrt(double(q.size(3)));
    return trax_ ? logits - own_position(rows, q.size(2)).to(at::kDouble) * kOwnPositionPenalty : logits;
  }

  std::vector<std::pair<std::string, double>> occupancy(const at::Tensor& buckets, const Mask& mask, int64_t length) const {
    const auto factors = bucket_factors_of(buckets_for(length));
    const auto count = factors ? (*factors)[0] * (*factors)[1] : buckets_for(length);
    auto hashed = at::ones_like(buckets);
    if (mask.key_lengths) hashed.masked_fill_(mask.hidden_keys(length)->transpose(2, 3), 0);
    const auto keys = at::zeros({buckets.size(0), buckets.size(1), rounds_, count}, buckets.options())
                          .scatter_add_(3, buckets, hashed)
                          .to(at::kDouble);
    const auto total = keys.sum(-1), used = (keys > 0).sum();
    if (used.item<int64_t>() == 0) return {};
    const auto skew = keys.amax(-1) * double(count) / total.clamp_min(1);
    return {{"lsh_bucket_mean", (total.sum() / used).item<double>()}, {"lsh_bucket_skew", skew.max().item<double>()}};
  }

  // ------------------------------------------------------------ cost

  Cost cost_of(const Problem& p, bool backward, int64_t buckets) const {
    const double tokens = double(p.batch) * double(p.heads) * double(p.query_len), rounds = double(rounds_);
    const double chunk = double(std::min(chunk_, p.query_len));
    const double slots = tokens / double(p.query_len) * std::ceil(double(p.query_len) / chunk) * chunk * rounds;
    const auto factors = bucket_factors_of(buckets);
    const double columns = factors ? double((*factors)[0] + (*factors)[1]) / 2 : double(buckets) / 2;
    const double dim = double(p.head_dim), value_dim = double(p.value_dim), width = 2 * chunk;
    const double hash = tokens * rounds * columns * (2 * dim + 2);
    const double logits = slots * width * 2 * dim, values = slots * width * 2 * value_dim, exponentials = slots * width * 5;
    const double forward = hash + logits + values + exponentials;
    const double least = p.input_bytes() + p.output_bytes();
    const double inputs = p.input_bytes() + (backward ? p.output_bytes() : 0);
    const bool own = kernels::find_lsh({kernel_, p.dtype, p.device, p.head_dim, p.value_dim}) != nullptr;
    return {backward ? forward + 3 * logits + 2 * values + 2 * exponentials : forward,
            backward ? 2 * least + p.input_bytes() : least,
            inputs + (own ? kernel_bytes(p, backward, tokens) : extra_bytes(p, backward, tokens, slots, columns))};
  }

  // Of the kernels: order and log-sum-exp, the buckets or the output's sums; backward the shares and each thread's sums.
  double kernel_bytes(const Problem& p, bool backward, double tokens) const {
    const double sum = std::max(4.0, p.element_bytes()), places = tokens * double(rounds_);
    const double dim = double(kernels::padded(p.head_dim)), value_dim = double(kernels::padded(p.value_dim));
    if (p.device == kernels::cuda_device()) {
      // Keys, as many sorted, and what the sort needs beside them; float32 sums of rounds and of gradients.
      const double merging = rounds_ > 1 ? tokens * (4 * double(p.value_dim) + 16) : 0;
      const double forward = p.output_bytes() + 16 * places + std::max(24 * places, merging);
      if (!backward) return forward;
      const double summing = p.query_bytes() + p.value_bytes() + 4 * places + 4 * tokens * double(2 * p.head_dim + p.value_dim);
      return p.output_bytes() + 16 * places + std::max(std::max(24 * places, merging), summing) + p.key_bytes();
    }
    const bool in_place = p.element_bytes() == sum && p.value_dim % kernels::kPadding == 0;
    const double merging = rounds_ > 1 ? tokens * ((in_place ? 0 : sum * value_dim) + (trax_ ? 16 : 0)) : 0;
    const double forward = p.output_bytes() + 16 * places + std::max(4 * places, merging);
    if (!backward) return forward;
    const double copies = double(at::get_num_threads()) * double(p.query_len);
    const double summing = p.query_bytes() + p.value_bytes() + sum * places + sum * copies * (2 * dim + value_dim);
    // The gradient of k, which nothing depends on, is made of zeros.
    return p.output_bytes() + 16 * places + std::max(std::max(4 * places, merging), summing) + p.key_bytes();
  }

  // Of the composition, counted in its widest moments.
  double extra_bytes(const Problem& p, bool backward, double tokens, double slots, double columns) const {
    const double sum = std::max(4.0, p.element_bytes()), places = tokens * double(rounds_);
    const double dim = double(p.head_dim), value_dim = double(p.value_dim), width = 2 * double(std::min(chunk_, p.query_len));
    const double turned = 8 * places * columns + std::max(8 * tokens * dim, 48 * places);
    // Positions, then the inputs in the type of the sums with their keys.
    const double kept = 24 * slots + 16 * places + sum * tokens * (2 * dim + value_dim);
    const double hidden = p.causal ? slots * width : 0;
    // Queries and keys at their places, then weights, then values and products.
    if (!backward) {
      const double chunks = sum * slots * (width + 3 * std::max(dim, value_dim)) + hidden;
      return std::max(turned, kept + chunks + 16 * slots);
    }
    // Backward: the weights with the products that the values' gradient is summed from, or with the logits' gradient.
    const double summing = slots * (width + 3 * dim + 4 * value_dim) + 2 * tokens * value_dim;
    const double weighing = slots * (2 * width + 3 * dim + 3 * value_dim) + tokens * value_dim;
    const double widened = p.element_bytes() < sum ? tokens * value_dim : 0;
    return p.output_bytes() + 24 * places + kept + 16 * slots + hidden + sum * (std::max(summing, weighing) + widened);
  }

  int64_t rounds_;
  std::string profile_;
  bool trax_;
  int64_t chunk_, buckets_;
  uint64_t seed_;
  std::string kernel_;
  at::Tensor rotations_;
  int64_t rotated_buckets_ = 0;
};

MethodEntry entry(const std::string& name, int64_t rounds, bool composed = false) {
  OptionSpec kernel{"kernel",
                    std::string("auto"),
                    "what computes: the CPU's instruction set, or cuda; auto: the best there is; composed: of ATen operations",
                    {"auto", "avx512", "avx2", "portable", "cuda", kComposed}};
  if (composed) kernel = {"kernel", std::string(kComposed), "of ATen operations", {kComposed}};
  return entry_of<Lsh>(
      name,
      std::string("Reformer's LSH attention, shared queries and keys, ") + std::to_string(rounds) +
          (rounds > 1 ? " rounds" : " round") + (composed ? ", composed of ATen operations" : ""),
      "O(N log N)", "O(N)",
      {{"rounds", rounds, "rounds of hashing", {}, 1},
       {"chunk", int64_t{0}, "positions a chunk; 0: the profile's own, 64 or 32", {}, 0},
       {"buckets", int64_t{0}, "even number of buckets; 0: the profile's own, 2·N/chunk or 64", {}, 0},
       {"profile", std::string(kTrax), "Reformer's own code, or the comparison of the linear paper", {kTrax, kFastTransformers}},
       {"seed", int64_t{0}, "of the rotations", {}, 0},
       kernel});
}

const RegisterMethod registered{entry("lsh", 1)}, registered_1{entry("lsh-1", 1)}, registered_4{entry("lsh-4", 4)},
    registered_8{entry("lsh-8", 8)}, composed{entry("lsh-composed", 1, /*composed=*/true)};

}  // namespace
}  // namespace attn
