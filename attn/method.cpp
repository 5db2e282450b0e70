// The checks around every call of a method, and the defaults of its interface.
#include "attn/method.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "attn/implementations.h"
#include "attn/reference.h"

namespace attn {
namespace {

template <class T>
bool contains(const std::vector<T>& list, const T& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

}  // namespace

double error_tolerance(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return 1e-9;  // terms of both signs cancel in the denominators of random features
    case at::kFloat: return 5e-4;   // sums over 65536 keys lose some bits
    case at::kHalf: return 1e-2;
    case at::kBFloat16: return 4e-2;
    default: TORCH_CHECK_VALUE(false, "no error tolerance for ", dtype_name(dtype));
  }
}

const std::vector<InputSpec>& AttentionMethod::inputs() const {
  if (inputs_.empty()) inputs_ = capabilities().inputs;
  return inputs_;
}

Problem AttentionMethod::checked_problem_of(const Inputs& inputs) const {
  const auto& read = this->inputs();
  const InputSpec* ignored = nullptr;
  for (const auto& spec : kInputs) {
    const auto is_spec = [&](const InputSpec& one) { return one.member == spec.member; };
    if (!(inputs.*spec.member).defined() || std::any_of(read.begin(), read.end(), is_spec)) continue;
    TORCH_CHECK_VALUE(spec.required, label(), " does not read the input ", spec.name);
    ignored = &spec;
  }
  if (!ignored) return problem_of(inputs, read);
  auto checked = read;
  checked.insert(checked.begin() + 1, *ignored);  // keys stand between q and v, as in the table
  return problem_of(inputs, checked);
}

Cost cost_with_repeated_heads(const Cost& of_all_heads, const Problem& p, Protocol protocol) {
  const auto all = p.with_all_heads();
  auto cost = of_all_heads;
  // The copies are read and written once, and their gradients are summed once.
  const double passes = protocol == Protocol::forward_backward ? 2 : 1;
  cost.min_bytes -= passes * (all.input_bytes() - p.input_bytes());
  for (const auto& [copy, original] :
       {std::pair{all.query_bytes(), p.query_bytes()}, {all.key_bytes(), p.key_bytes()}, {all.value_bytes(), p.value_bytes()}})
    if (copy != original) cost.peak_bytes += passes * original;
  return cost;
}

at::Tensor AttentionMethod::forward(const Inputs& inputs) {
  const auto problem = checked_problem_of(inputs);
  bool differentiates = false;
  for (const auto& spec : this->inputs()) differentiates = differentiates || records_gradients(inputs.*spec.member);
  const auto reason = why_unsupported(problem, differentiates ? Protocol::forward_backward : Protocol::forward);
  TORCH_CHECK_VALUE(!reason, *reason);
  if (problem.heads_are_shared() && capabilities().shared_heads == SharedHeads::repeated) return attend(inputs.with_all_heads());
  return attend(inputs);
}

std::optional<ExactAttention> AttentionMethod::exact_attention(const Inputs& masked, const at::Tensor& rows) const {
  // What a pattern leaves out is an error of the method; packed sequences stay apart.
  auto inputs = masked;
  inputs.mask.pattern = {};
  auto weights = reference::softmax_weights(inputs, rows);
  auto output = at::matmul(weights, zero_where(inputs.v, inputs.mask.hidden_keys(inputs.k.size(2))));
  return ExactAttention{std::move(output), std::move(weights)};
}

double AttentionMethod::error_tolerance(at::ScalarType dtype) const { return attn::error_tolerance(dtype); }

std::optional<std::string> AttentionMethod::why_unsupported(const Problem& problem, Protocol protocol) const {
  const auto can = capabilities();
  if (protocol == Protocol::prefill || protocol == Protocol::decode) {
    if (!can.decoding) return label() + " does not decode";
    if (!problem.causal) return label() + ": decoding needs the causal mask";
    if (!problem.key_lengths.is_full()) return label() + ": decoding takes no key lengths";
    if (problem.heads_are_shared() && can.shared_heads != SharedHeads::read)
      return label() + ": decoding needs as many heads of keys and values as of queries";
    if (problem.key_len != problem.query_len) return label() + ": decoding needs key_len = query_len";
  }
  if (problem.causal && !can.causal) return label() + " has no causal form";
  if (problem.key_len != problem.query_len && !can.cross_attention) return label() + " needs key_len = query_len";
  if (problem.key_len != problem.query_len && problem.causal && !can.causal_cross_attention)
    return label() + " needs key_len = query_len with the causal mask";
  if (problem.heads_are_shared() && can.shared_heads == SharedHeads::no)
    return label() + " needs as many heads of keys and values as of queries";
  const bool is_call = protocol == Protocol::forward || protocol == Protocol::forward_backward;
  if (is_call && (problem.query_len % can.length_multiple != 0 || problem.key_len % can.length_multiple != 0))
    return label() + " needs lengths that are multiples of " + std::to_string(can.length_multiple);
  if (!problem.key_lengths.is_full() && !can.key_lengths) return label() + " has no key-length mask";
  if (!problem.pattern.is_all()) {
    if (!can.patterns) return label() + " has no patterns of visible keys";
    if (!is_call && (!can.windows_in_decoding || problem.pattern.kind != Pattern::Kind::window))
      return label() + ": decoding takes " + (can.windows_in_decoding ? "windows alone, not" : "no") + " pattern " +
             problem.pattern.text();
  }
  if (!problem.packed.is_none()) {
    if (!can.packed) return label() + " takes no packed sequences";
    if (!is_call) return label() + ": decoding takes no packed sequences";
  }
  const auto sinks =
      std::find_if(can.inputs.begin(), can.inputs.end(), [](const InputSpec& spec) { return spec.member == &Inputs::sinks; });
  if (problem.sinks && sinks == can.inputs.end()) return label() + " takes no sinks";
  if (!problem.sinks && sinks != can.inputs.end() && sinks->required) return label() + " needs sinks";
  if (protocol == Protocol::forward_backward && !can.gradients) return label() + " has no gradients";
  if (!contains(can.dtypes, problem.dtype)) return label() + " does not take " + dtype_name(problem.dtype);
  if (problem.dtype == at::kHalf && !takes_float16(problem.device)) return label() + " takes float16 on CUDA only";
  if (!contains(can.devices, problem.device))
    return label() + " does not run on " + c10::DeviceTypeName(problem.device, /*lower_case=*/true);
  if (!problem.causal && !can.full) return label() + " has a causal form only";
  return std::nullopt;
}

std::unique_ptr<DecodingState> AttentionMethod::begin_decoding(const Problem& problem) const {
  problem.validate();
  const auto reason = why_unsupported(problem, Protocol::decode);
  TORCH_CHECK_VALUE(!reason, *reason);
  auto state = make_state(problem);
  state->owner_ = this;
  state->problem_ = problem;
  return state;
}

void AttentionMethod::check_tokens(const DecodingState& state, const Inputs& inputs) const {
  const auto tokens = checked_problem_of(inputs);
  TORCH_CHECK_VALUE(tokens.causal && tokens.key_lengths.is_full(), label(),
                    ": the mask of decoded tokens must be causal and without key lengths");
  TORCH_CHECK_VALUE(tokens.key_len == tokens.query_len, label(), ": tokens have ", tokens.query_len, " queries and ",
                    tokens.key_len, " keys, expected as many keys as queries");
  const auto& expected = state.problem();
  TORCH_CHECK_VALUE(state.owner_ == this, label(), ": the decoding state belongs to another method");
  const auto check = [&](const char* name, int64_t value, int64_t expected_value) {
    TORCH_CHECK_VALUE(value == expected_value, label(), ": tokens have ", name, " ", value, ", expected ", expected_value,
                      " as in the decoding state");
  };
  check("batch", tokens.batch, expected.batch);
  check("heads", tokens.heads, expected.heads);
  check("kv_heads", tokens.kv_heads, expected.key_head_count());
  check("value_heads", tokens.value_heads, expected.value_head_count());
  check("head_dim", tokens.head_dim, expected.head_dim);
  check("value_dim", tokens.value_dim, expected.value_dim);
  TORCH_CHECK_VALUE(tokens.pattern == expected.pattern, label(), ": tokens have the pattern ", tokens.pattern.text(),
                    ", expected ", expected.pattern.text(), " as in the decoding state");
  TORCH_CHECK_VALUE(tokens.sinks == expected.sinks, label(), ": tokens have ", tokens.sinks ? "" : "no ", "sinks, expected ",
                    expected.sinks ? "" : "no ", "sinks as in the decoding state");
  TORCH_CHECK_VALUE(tokens.dtype == expected.dtype && tokens.device == expected.device, label(), ": tokens are ",
                    dtype_name(tokens.dtype), " on ", c10::DeviceTypeName(tokens.device, true), ", but the decoding state is ",
                    dtype_name(expected.dtype), " on ", c10::DeviceTypeName(expected.device, true));
}

void AttentionMethod::check_room(const DecodingState& state, int64_t tokens) const {
  TORCH_CHECK_VALUE(state.position() + tokens <= state.problem().key_len, label(), ": the decoding state holds ",
                    state.position(), " of ", state.problem().key_len, " tokens, ", tokens, " more do not fit");
}

at::Tensor AttentionMethod::step(DecodingState& state, const Inputs& token) {
  check_tokens(state, token);
  TORCH_CHECK_VALUE(token.q.size(2) == 1, label(), ": a step takes one token, got ", token.q.size(2));
  check_room(state, 1);
  auto output = decode(state, token);
  ++state.position_;
  return output;
}

std::unique_ptr<BoundStep> AttentionMethod::bind_step(DecodingState& state, const Inputs& token, const at::Tensor& output,
                                                      int64_t workers) const {
  check_tokens(state, token);
  TORCH_CHECK_VALUE(token.q.size(2) == 1, label(), ": a step takes one token, got ", token.q.size(2));
  const std::vector<int64_t> sizes{token.q.size(0), state.problem().output_head_count(), 1, token.v.size(3)};
  TORCH_CHECK_VALUE(
      output.sizes() == sizes && output.scalar_type() == token.v.scalar_type() && output.device() == token.v.device(), label(),
      ": the output of a step is ", output.scalar_type(), " ", output.sizes(), " on ", output.device(), ", expected ",
      token.v.scalar_type(), " ", at::IntArrayRef(sizes), " on ", token.v.device());
  for (const auto& x : {token.q, token.k, token.v, output})
    TORCH_CHECK_VALUE(!x.defined() || x.size(3) == 1 || x.stride(3) == 1, label(),
                      ": the rows of a bound step must be contiguous");
  TORCH_CHECK_VALUE(workers >= 1, label(), ": workers = ", workers, ", expected at least 1");
  auto bound = make_bound_step(state, token, output, workers);
  if (bound) bound->state_ = &state;
  return bound;
}

void AttentionMethod::extend(DecodingState& state, const Inputs& tokens) {
  check_tokens(state, tokens);
  check_room(state, tokens.q.size(2));
  absorb(state, tokens);
  state.position_ += tokens.q.size(2);
}

at::Tensor AttentionMethod::prefill(DecodingState& state, const Inputs& tokens) {
  check_tokens(state, tokens);
  TORCH_CHECK_VALUE(state.position() == 0 || capabilities().prefill_continues, label(),
                    ": prefill needs a fresh decoding state, this one holds ", state.position(), " tokens");
  check_room(state, tokens.q.size(2));
  auto output = fill(state, tokens);
  state.position_ += tokens.q.size(2);
  return output;
}

std::unique_ptr<DecodingState> AttentionMethod::make_state(const Problem&) const {
  TORCH_CHECK(false, label(), " has capabilities().decoding but does not override make_state()");
}
void AttentionMethod::absorb(DecodingState&, const Inputs&) {
  TORCH_CHECK(false, label(), " has capabilities().decoding but does not override absorb()");
}
at::Tensor AttentionMethod::decode(DecodingState&, const Inputs&) {
  TORCH_CHECK(false, label(), " has capabilities().decoding but does not override decode()");
}
at::Tensor AttentionMethod::fill(DecodingState& state, const Inputs& tokens) {
  auto output = attend(tokens);
  absorb(state, tokens);
  return output;
}

}  // namespace attn
