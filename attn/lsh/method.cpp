// Registers the methods lsh, lsh-1, lsh-4 and lsh-8: Reformer's LSH attention (2001.04451) in 1, 1, 4 or 8 rounds, with the
// operator of attn/lsh/lsh_attention.h; and lsh-composed, the same composed of ATen operations. Queries and keys are shared: qk
// is q, and k is ignored.
//
// Decoding recomputes, as the paper ran it: a step is the last row of the causal forward over the prefix. That is not the same as
// this row of the causal forward over a longer sequence, because later tokens move the borders of the sorted chunks.
#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "attn/cpu/instruction_set.h"
#include "attn/lsh/cost.h"
#include "attn/lsh/implementation.h"
#include "attn/lsh/reference.h"
#include "attn/lsh/settings.h"
#include "attn/registry.h"

namespace attn {
namespace {

constexpr const char* kComposed = "composed";

LshSettings settings_from(const Options& options) {
  LshSettings s{options.integer("rounds"), options.text("profile"), options.integer("chunk"), options.integer("buckets"),
                uint64_t(options.integer("seed"))};
  TORCH_CHECK_VALUE(s.buckets % 2 == 0, "lsh: buckets = ", s.buckets, ", expected an even number, or 0 for the profile's own");
  if (s.chunk == 0) s.chunk = s.trax() ? 64 : 32;
  return s;
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
  explicit Lsh(const Options& options) : settings_(settings_from(options)), kernel_(options.text("kernel")) {
    if (kernel_ != kComposed && kernel_ != "cuda") cpu::choose_instruction_set(kernel_);
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
    return implementations_.why_unsupported(label(), request_for(p));
  }

  Cost cost(const Problem& problem, Protocol protocol) const override {
    const auto* implementation = implementations_.find(request_for(problem));
    if (protocol == Protocol::forward || protocol == Protocol::forward_backward)
      return lsh_cost(settings_, problem, protocol == Protocol::forward_backward, implementation);
    // Decoding runs the forward over the prefix that its state holds, for one row of it.
    auto prefix = problem;
    if (protocol == Protocol::decode) prefix.key_len = prefix.query_len = problem.query_len + 1;
    auto cost = lsh_cost(settings_, prefix, /*backward=*/false, implementation);
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

  // The state is allocated for key_len tokens at the beginning.
  double state_bytes(const Problem& problem, int64_t) const override { return problem.query_bytes() + problem.value_bytes(); }

  at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const override {
    return reference::lsh(settings_, inputs, rows);
  }

  std::optional<at::Tensor> approximated(const Inputs& inputs, const at::Tensor& rows) const override {
    return reference::lsh_exact(settings_, inputs, rows);
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
    return output.narrow(2, prefix - 1, 1).clone();  // a view would keep the memory of the other rows
  }

  at::Tensor fill(DecodingState& state, const Inputs& tokens) override {
    absorb(state, tokens);
    return attend(tokens);
  }

 private:
  ImplementationRequest request_for(const Problem& p) const { return {kernel_, p.dtype, p.device, p.head_dim, p.value_dim}; }

  at::Tensor attend_to(const at::Tensor& qk, const at::Tensor& v, const Mask& mask) {
    const auto* implementation = implementations_.find({kernel_, qk.scalar_type(), qk.device().type(), qk.size(3), v.size(3)});
    ran(implementation ? "kernel/" + implementation->name() : "aten/sorted chunks");
    const auto buckets = settings_.buckets_for(qk.size(2));
    // The same seed gives the same rotations. They are drawn once for all calls, because drawing needs the CPU and a copy to the
    // device.
    if (!rotations_.defined() || rotations_.size(0) != qk.size(3) || rotations_.device() != qk.device() ||
        rotated_buckets_ != buckets) {
      rotations_ = draw_rotations(qk.size(3), settings_.rounds, buckets, settings_.seed, qk.device());
      rotated_buckets_ = buckets;
    }
    const auto factors = bucket_factors_of(buckets);
    return lsh_attention(qk, v, rotations_, settings_.chunk, mask.causal, mask.key_lengths, settings_.profile,
                         at::OptionalIntArrayRef(factors), implementation ? implementation->name() : kComposed);
  }

  LshSettings settings_;
  std::string kernel_;
  ImplementationResolver<LshRegistry> implementations_{lsh_implementations()};
  at::Tensor rotations_;
  int64_t rotated_buckets_ = 0;  // what rotations_ were drawn for
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
       {"chunk", int64_t{0}, "positions in a chunk; 0: the profile's own, 64 or 32", {}, 0},
       {"buckets", int64_t{0}, "even number of buckets; 0: the profile's own, 2·N/chunk or 64", {}, 0},
       {"profile", std::string(kTrax), "Reformer's own code, or the comparison of the linear paper", {kTrax, kFastTransformers}},
       {"seed", int64_t{0}, "of the rotations", {}, 0},
       kernel});
}

const RegisterMethod registered{entry("lsh", 1)}, registered_1{entry("lsh-1", 1)}, registered_4{entry("lsh-4", 4)},
    registered_8{entry("lsh-8", 8)}, composed{entry("lsh-composed", 1, /*composed=*/true)};

}  // namespace
}  // namespace attn
