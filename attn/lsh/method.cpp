// Registers the methods lsh, lsh-1, lsh-4 and lsh-8, Reformer's LSH attention (2001.04451) in 1, 1, 4 and 8 rounds by the
// operator of attn/lsh/lsh_attention.h, and lsh-composed, which composes it of ATen operations. Queries and keys are shared: q
// serves as both, and k is not read.
//
// A decoding step computes the causal forward over the whole prefix and returns its last row, as was done in the paper. That
// differs from the same row of the causal forward over a longer sequence, because later tokens move the borders of the sorted
// chunks.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "attn/lsh/cost.h"
#include "attn/lsh/implementation.h"
#include "attn/lsh/reference.h"
#include "attn/lsh/settings.h"
#include "attn/registry.h"

namespace attn {
namespace {

LshSettings settings_from(const Options& options) {
  LshSettings s{options.integer("rounds"), options.text("profile"), options.integer("chunk"), options.integer("buckets"),
                uint64_t(options.integer("seed"))};
  TORCH_CHECK_VALUE(s.buckets % 2 == 0, "lsh: buckets = ", s.buckets,
                    ", expected an even number, or 0 for the profile's default");
  if (s.chunk == 0) s.chunk = s.trax() ? 64 : 32;
  return s;
}

class LshState : public DecodingState {
 public:
  explicit LshState(const Problem& p)
      : qk(at::zeros({p.batch, p.heads, p.key_len, p.head_dim}, at::TensorOptions(p.dtype).device(p.device))),
        v(at::zeros({p.batch, p.heads, p.key_len, p.value_dim}, qk.options())) {}

  at::Tensor qk, v;  // [B,H,key_len,D] and [B,H,key_len,M], of which the first position() tokens are filled

 protected:
  std::vector<at::Tensor> tensors() const override { return {qk, v}; }
};

class Lsh : public AttentionMethod {
 public:
  explicit Lsh(const Options& options) : settings_(settings_from(options)), wanted_(options.text("implementation")) {}

  Capabilities capabilities() const override {
    Capabilities can;
    can.inputs = {find_input("q"), find_input("v")};
    can.cross_attention = false;
    can.decoding = true;
    can.steps_are_rows_of_forward = false;
    can.steps_recompute_prefix = true;
    return can;
  }

  bool takes_float16(c10::DeviceType device) const override { return implementations_.takes_float16(device); }

  std::optional<std::string> why_unsupported(const Problem& p, Protocol protocol) const override {
    if (auto reason = AttentionMethod::why_unsupported(p, protocol)) return reason;
    return implementations_.why_unsupported(label(), request_for(p, protocol == Protocol::forward_backward));
  }

  Cost cost(const Problem& problem, Protocol protocol) const override {
    const auto* implementation = implementations_.find(request_for(problem, protocol == Protocol::forward_backward));
    if (protocol == Protocol::forward || protocol == Protocol::forward_backward)
      return lsh_cost(settings_, problem, protocol == Protocol::forward_backward, implementation);
    // Decoding computes the forward over the prefix in the state, and returns one row of it.
    auto prefix = problem;
    if (protocol == Protocol::decode) prefix.key_len = prefix.query_len = problem.query_len + 1;
    auto cost = lsh_cost(settings_, prefix, /*backward=*/false, implementation);
    const auto state = state_bytes(prefix, prefix.key_len);
    cost.peak_bytes += state;
    if (protocol == Protocol::prefill) {
      cost.min_bytes += state;
    } else {
      const double tokens = double(prefix.query_len);
      cost.min_bytes = state + (lsh_input_bytes(prefix) + prefix.output_bytes()) / tokens;
      cost.peak_bytes -= lsh_input_bytes(prefix) * (1 - 1 / tokens);
    }
    return cost;
  }

  // begin_decoding() allocates the state for key_len tokens, so its size does not depend on the position.
  double state_bytes(const Problem& problem, int64_t) const override { return lsh_input_bytes(problem); }

  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override {
    return reference::lsh(settings_, inputs, rows);
  }

  std::optional<ExactAttention> exact_attention(const Inputs& inputs, const at::Tensor& rows) const override {
    return reference::lsh_exact(settings_, inputs, rows);
  }

  std::vector<DiagnosticSpec> diagnostic_specs() const override {
    return {
        {"lsh_bucket_mean", "", "mean number of keys in a bucket, over the buckets that are not empty"},
        {"lsh_bucket_skew", "", "number of keys in the fullest bucket, divided by the mean over all buckets"},
        {"lsh_top16_share", "",
         "share of the 16 keys with a query's largest logits that the query sees in at least one round; mean over the checked "
         "rows that may see any key"},
        {"lsh_mass_covered", "",
         "share of the exact softmax weights that belongs to keys that the query sees in at least one round; mean over the "
         "checked rows that may see any key"}};
  }

  std::vector<std::pair<std::string, double>> diagnostics(const Inputs& inputs, const at::Tensor& rows) const override {
    return reference::lsh_diagnostics(settings_, inputs, rows);
  }

 protected:
  at::Tensor attend(const Inputs& inputs) override { return attend_to(inputs.q, inputs.v, inputs.mask); }

  std::unique_ptr<DecodingState> make_state(const Problem& problem) const override { return std::make_unique<LshState>(problem); }

  void absorb(DecodingState& state, const Inputs& tokens) override {
    const auto& all = static_cast<LshState&>(state);
    all.qk.narrow(2, state.position(), tokens.q.size(2)).copy_(tokens.q);
    all.v.narrow(2, state.position(), tokens.v.size(2)).copy_(tokens.v);
  }

  at::Tensor decode(DecodingState& state, const Inputs& token) override {
    absorb(state, token);
    const auto& all = static_cast<LshState&>(state);
    const auto prefix = state.position() + 1;
    const auto output = attend_to(all.qk.narrow(2, 0, prefix), all.v.narrow(2, 0, prefix), {.causal = true});
    return output.narrow(2, prefix - 1, 1).clone();  // a view would hold the memory of all rows
  }

  at::Tensor fill(DecodingState& state, const Inputs& tokens) override {
    absorb(state, tokens);
    return attend(tokens);
  }

 private:
  ImplementationRequest request_for(const Problem& p, bool gradients) const {
    return {wanted_, p.dtype, p.device, p.head_dim, p.value_dim, gradients};
  }

  at::Tensor attend_to(const at::Tensor& qk, const at::Tensor& v, const Mask& mask) {
    const auto* implementation = implementations_.find(
        {wanted_, qk.scalar_type(), qk.device().type(), qk.size(3), v.size(3), records_gradients({qk, v}), qk.device().index()});
    ran(implementation ? "kernel/" + implementation->name() : "aten/sorted chunks");
    const auto buckets = settings_.buckets_for(qk.size(2));
    // The rotations are cached between calls, because they are drawn on the CPU and copied to the device. The same seed would
    // give the same ones again.
    if (!rotations_.defined() || rotations_.size(0) != qk.size(3) || rotations_.device() != qk.device() ||
        rotated_buckets_ != buckets) {
      rotations_ = draw_rotations(qk.size(3), settings_.rounds, buckets, settings_.seed, qk.device());
      rotated_buckets_ = buckets;
    }
    const auto factors = bucket_factors_of(buckets);
    return lsh_attention(qk, v, rotations_, settings_.chunk, mask.causal, mask.key_lengths, settings_.profile,
                         at::OptionalIntArrayRef(factors), implementation ? implementation->name() : kComposedImplementation);
  }

  LshSettings settings_;
  std::string wanted_;
  ImplementationResolver<LshRegistry> implementations_{lsh_implementations()};
  at::Tensor rotations_;
  int64_t rotated_buckets_ = 0;  // the number of buckets that rotations_ were drawn for
};

MethodEntry entry(const std::string& name, int64_t rounds, bool composed = false) {
  auto implementation = implementation_option({"avx512", "avx2", "neon", "portable", "cuda"});
  if (composed)
    implementation = {implementation.name,
                      std::string(kComposedImplementation),
                      "always composed of ATen operations",
                      {kComposedImplementation}};
  return entry_of<Lsh>(
      name,
      std::string("Reformer's LSH attention, shared queries and keys, ") + std::to_string(rounds) +
          (rounds > 1 ? " rounds" : " round") + (composed ? ", composed of ATen operations" : ""),
      "O(N log N)", "O(N)",
      {{"rounds", rounds, "rounds of hashing", {}, 1, 1024},
       {"chunk", int64_t{0}, "positions in a chunk; 0: the profile's default, 64 (trax) or 32 (fast-transformers)", {}, 0},
       {"buckets",
        int64_t{0},
        "even number of buckets; 0: the profile's default, 2·N/chunk (trax) or 64 (fast-transformers)",
        {},
        0},
       {"profile",
        std::string(kTrax),
        "trax: Reformer's own code; fast-transformers: the code that the linear-attention paper compared with",
        {kTrax, kFastTransformers}},
       {"seed", int64_t{0}, "seed of the random rotations", {}, 0, kMaxSeed},
       implementation});
}

const RegisterMethod registered{entry("lsh", 1)}, registered_1{entry("lsh-1", 1)}, registered_4{entry("lsh-4", 4)},
    registered_8{entry("lsh-8", 8)}, composed{entry("lsh-composed", 1, /*composed=*/true)};

}  // namespace
}  // namespace attn
