// Calls kernels or the composed computation, and predicts the costs of both.
#include "attn/recurrent/method.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>
#include <vector>

#include "attn/recurrent/composed.h"
#include "attn/recurrent/recurrent_attention.h"
#include "attn/recurrent/reference.h"
#include "attn/registry.h"

namespace attn {
namespace {

class RecurrentState : public DecodingState {
 public:
  RecurrentState(const RecurrentImplementation* chosen, const Problem& p)
      : implementation(chosen),
        s(at::zeros({p.batch, p.value_head_count(), p.head_dim, p.value_dim},
                    at::TensorOptions(accumulator_dtype(p.dtype)).device(p.device))) {}

  bool steps_can_be_replayed() const override { return true; }

  const RecurrentImplementation* implementation;  // null: composed
  at::Tensor s;                                   // [B,W,K,V]

 protected:
  std::vector<at::Tensor> tensors() const override { return {s}; }
};

}  // namespace

RecurrentMethod::RecurrentMethod(RecurrentRule rule, std::string implementation)
    : rule_(rule), implementation_name_(std::move(implementation)) {}

Capabilities RecurrentMethod::capabilities() const {
  Capabilities can;
  can.full = can.cross_attention = can.key_lengths = false;
  can.shared_heads = SharedHeads::read;
  can.packed = can.decoding = can.prefill_continues = true;
  if (implementation_name_ == kComposedImplementation) can.nan_reaches_its_rows_only = false;
  if (rule_.reads_g) can.inputs.push_back(find_input("g"));
  if (rule_.feature_gates) can.inputs.back().shape = "BWLD";
  if (rule_.reads_beta) can.inputs.push_back(find_input("beta"));
  return can;
}

std::optional<std::string> RecurrentMethod::why_unsupported(const Problem& p, Protocol protocol) const {
  if (auto reason = AttentionMethod::why_unsupported(p, protocol)) return reason;
  if (!p.packed.is_none() && p.batch != 1) return label() + " takes packed sequences in a batch of 1 alone";
  if (p.key_head_count() != p.heads) return label() + " needs as many heads of keys as of queries";
  if (p.value_head_count() % p.heads != 0)
    return label() + " needs a number of heads of values that is a multiple of that of queries";
  return implementations_.why_unsupported(label(), request_for(p, protocol == Protocol::forward_backward));
}

ImplementationRequest RecurrentMethod::request_for(const Problem& p, bool gradients) const {
  return {implementation_name_, p.dtype, p.device, p.head_dim, p.value_dim, gradients};
}

std::optional<at::Tensor> RecurrentMethod::decays_of(const Inputs& inputs) const {
  if (inputs.g.defined()) return inputs.g;
  if (!rule_.constant_decay) return std::nullopt;
  const auto heads = inputs.v.size(1), all = inputs.part ? inputs.part->heads_of_call : heads;
  const auto indices = inputs.part ? inputs.part->heads.cpu() : at::arange(heads);
  std::vector<double> decays;
  for (int64_t i = 0; i < heads; ++i) decays.push_back(rule_.constant_decay(indices[i].item<int64_t>(), all));
  const auto dtype = accumulator_dtype(inputs.q.scalar_type());
  return at::tensor(decays, at::kDouble)
      .to(at::TensorOptions(dtype).device(inputs.q.device()))
      .view({1, heads, 1})
      .expand({inputs.v.size(0), heads, inputs.v.size(2)});
}

RecurrentArguments RecurrentMethod::arguments_of(const Inputs& inputs) const {
  const auto beta = inputs.beta.defined() ? std::optional(inputs.beta) : std::nullopt;
  const auto scale = 1 / std::sqrt(double(inputs.q.size(3)));
  return {inputs.q, inputs.k, inputs.v, decays_of(inputs), beta, {}, inputs.mask.cu_seqlens, rule_.delta, scale, rule_.normalize};
}

at::Tensor RecurrentMethod::reference(const Inputs& inputs, const at::Tensor& rows) const {
  auto all = inputs;
  if (const auto g = decays_of(inputs)) all.g = *g;
  // A decay of −∞ at the first position of a packed sequence separates it from the sequence before it.
  if (const auto& borders = inputs.mask.cu_seqlens) {
    auto begins = at::arange(inputs.v.size(2), borders->options()).unsqueeze(1).eq(*borders).any(1);
    if (!all.g.defined()) all.g = at::zeros({inputs.v.size(0), inputs.v.size(1), inputs.v.size(2)}, inputs.v.options());
    if (all.g.dim() == 4) begins = begins.unsqueeze(1);
    all.g = all.g.masked_fill(begins, -INFINITY);
  }
  return reference::recurrent(
      all, rows, {.delta = rule_.delta, .scale = 1 / std::sqrt(double(inputs.q.size(3))), .normalize = rule_.normalize});
}

at::Tensor RecurrentMethod::attend(const Inputs& inputs) {
  const auto a = arguments_of(inputs);
  auto request = request_for(problem_of(inputs), records_gradients({a.q, a.k, a.v, inputs.g, inputs.beta}));
  request.device_index = a.q.device().index();
  const auto* implementation = implementations_.find(request);
  ran(implementation ? "kernel/" + implementation->name() : "aten/chunks");
  return recurrent_attention(a.q, a.k, a.v,
                             {.g = a.g,
                              .beta = a.beta,
                              .cu_seqlens = a.cu_seqlens,
                              .rule = rule_.delta ? "delta" : "add",
                              .scale = a.scale,
                              .normalize = a.normalize,
                              .implementation = implementation ? implementation->name() : kComposedImplementation})
      .first;
}

std::unique_ptr<DecodingState> RecurrentMethod::make_state(const Problem& problem) const {
  return std::make_unique<RecurrentState>(implementation_for(problem, /*gradients=*/false), problem);
}

at::Tensor RecurrentMethod::fill(DecodingState& state, const Inputs& tokens) {
  auto& own = static_cast<RecurrentState&>(state);
  auto a = arguments_of(tokens);
  a.initial_state = own.s;
  const auto results = own.implementation ? own.implementation->forward(a, /*gradients=*/false) : composed_recurrent_forward(a);
  ran(own.implementation ? "kernel/" + own.implementation->name() : "aten/chunks");
  own.s.copy_(results.final_state);
  return results.output;
}

void RecurrentMethod::absorb(DecodingState& state, const Inputs& tokens) { fill(state, tokens); }

at::Tensor RecurrentMethod::decode(DecodingState& state, const Inputs& token) {
  auto& own = static_cast<RecurrentState&>(state);
  if (!own.implementation) return fill(state, token);
  ran("kernel/" + own.implementation->name());
  return own.implementation->step(arguments_of(token), own.s);
}

std::unique_ptr<BoundStep> RecurrentMethod::make_bound_step(DecodingState& state, const Inputs& token, const at::Tensor& output,
                                                            int64_t workers) const {
  auto& own = static_cast<RecurrentState&>(state);
  return own.implementation ? own.implementation->bind_step(arguments_of(token), output, own.s, workers) : nullptr;
}

// Counts only the operations of the recurrence, although kernels also compute the scores of each chunk. With the delta rule a
// position reads the state twice and adds to it once, and its backward pass has ten products of the same size.
Cost RecurrentMethod::cost(const Problem& p, Protocol protocol) const {
  const bool decodes = protocol == Protocol::decode, backward = protocol == Protocol::forward_backward;
  const double heads = double(p.batch) * double(p.value_head_count()), positions = decodes ? 1 : double(p.query_len);
  const double product = 2 * heads * positions * double(p.head_dim) * double(p.value_dim);
  double gates = 0;
  for (const auto& spec : inputs())
    if (!spec.required) gates += spec.bytes(p);
  const double read = (p.input_bytes() + gates) * positions / double(p.query_len);
  const double written = p.output_bytes() * positions / double(p.query_len);
  const double state = state_bytes(p, 0);
  if (decodes) return {product * (rule_.delta ? 3 : 2), read + written + 2 * state, read + written + state};
  const auto* implementation = implementation_for(p, backward);
  const double working = implementation
                             ? implementation->working_bytes(p, rule_.feature_gates, backward)
                             : composed_recurrent_bytes(p, rule_.delta, rule_.normalize, rule_.feature_gates, backward);
  const double steps = rule_.delta ? (backward ? 13 : 3) : (backward ? 9 : 2);
  return {.flops = product * steps,
          .min_bytes = backward ? 3 * read + 2 * written : read + written,
          .peak_bytes = double(p.packed.count() - 1) * state +  // every packed sequence has a state
                        (backward ? 2 * (read + written) + working : read + written + working)};
}

double RecurrentMethod::state_bytes(const Problem& p, int64_t) const {
  return double(p.batch * p.value_head_count()) * double(p.head_dim) * double(p.value_dim) *
         double(c10::elementSize(accumulator_dtype(p.dtype)));
}

namespace {

// RetNet (2307.08621): the decay of head h is 1 − 2^(−5−h).
double retnet_decay(int64_t head, int64_t) { return std::log1p(-std::exp2(-5 - double(head))); }
// Lightning Attention (2405.17381): slopes of 8 h / H, as in its first layer.
double lightning_decay(int64_t head, int64_t heads) { return -8 * double(head) / double(heads); }

MethodEntry recurrent_entry(const char* name, const char* description, RecurrentRule rule) {
  return {name,
          description,
          "O(N)",
          "O(N)",
          {implementation_option({"avx512", "avx2", "neon", "portable"})},
          [rule](const Options& options) { return std::make_shared<RecurrentMethod>(rule, options.text("implementation")); }};
}

MethodEntry composed_entry(const char* name, const char* description, RecurrentRule rule) {
  return {name,   description,
          "O(N)", "O(N)",
          {},     [rule](const Options&) { return std::make_shared<RecurrentMethod>(rule, kComposedImplementation); }};
}

constexpr RecurrentRule kGatedDelta{.delta = true, .reads_g = true, .reads_beta = true, .normalize = true};
constexpr RecurrentRule kKimiDelta{.delta = true, .reads_g = true, .feature_gates = true, .reads_beta = true, .normalize = true};

const RegisterMethod gated_delta{
    recurrent_entry("gated-delta", "the gated delta rule (Gated DeltaNet), with keys of length 1", kGatedDelta)};
const RegisterMethod gated_delta_composed{
    composed_entry("gated-delta-composed", "the gated delta rule, composed of ATen operations in chunks", kGatedDelta)};
const RegisterMethod kda{recurrent_entry(
    "kda", "the delta rule with a decay for each feature of the keys (Kimi Delta Attention), with keys of length 1", kKimiDelta)};
const RegisterMethod kda_composed{
    composed_entry("kda-composed", "Kimi Delta Attention, composed of ATen operations in chunks", kKimiDelta)};
const RegisterMethod gla{recurrent_entry("gla", "linear attention with a decay for each feature of the keys (GLA)",
                                         {.reads_g = true, .feature_gates = true})};
const RegisterMethod delta{recurrent_entry("delta", "the delta rule (DeltaNet), with keys of length 1",
                                           {.delta = true, .reads_beta = true, .normalize = true})};
const RegisterMethod simple_gla{
    recurrent_entry("simple-gla", "linear attention whose state decays as the inputs say (Mamba-2's form)", {.reads_g = true})};
const RegisterMethod retnet{
    recurrent_entry("retnet", "linear attention with a constant decay for each head (RetNet)", {.constant_decay = retnet_decay})};
const RegisterMethod lightning{recurrent_entry("lightning",
                                               "linear attention with a constant decay for each head (Lightning Attention)",
                                               {.constant_decay = lightning_decay})};

}  // namespace
}  // namespace attn
