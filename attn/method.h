// AttentionMethod, the interface of every attention method: forward, decoding, capabilities, cost and the float64 reference.
//
//   const auto method = attn::make_method("linear-chunked:chunk=256");  // attn/registry.h
//   const auto output = method->forward(q, k, v, {.causal = true});
//
//   const auto state = method->begin_decoding(problem);
//   method->extend(*state, prompt);                               // or prefill(), which also returns the outputs
//   const auto row = method->step(*state, token);
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/decoding.h"
#include "attn/input_spec.h"
#include "attn/inputs.h"
#include "attn/mask.h"
#include "attn/problem.h"

namespace attn {

// How a method computes calls in which several heads share those of q, k or v.
enum class SharedHeads {
  no,
  repeated,  // attend() is given copies in which each is repeated as often as it is shared
  read       // attend() is given them as they are
};

// What a method supports.
struct Capabilities {
  bool full = true;                            // attention without the causal mask
  bool causal = true;                          // attention with the causal mask
  bool cross_attention = true;                 // key_len ≠ query_len
  bool causal_cross_attention = false;         // key_len ≠ query_len with the causal mask
  SharedHeads shared_heads = SharedHeads::no;  // other numbers of heads of keys or values than of queries; in decoding if `read`
  bool key_lengths = true;                     // Mask::key_lengths
  bool patterns = false;                       // patterns of visible keys other than `all`, in calls
  bool packed = false;                         // Mask::cu_seqlens, in calls
  bool windows_in_decoding = false;            // the patterns `window:…` in decoding
  bool gradients = true;                       // of the inputs that are differentiable
  int64_t length_multiple = 1;                 // of which query_len and key_len of calls must be multiples; at least 1
  bool decoding = false;                       // begin_decoding(), step(), extend() and prefill()
  bool prefill_continues = false;              // prefill() may be called on a state that holds tokens
  // Whether step() returns a row of the causal forward over the whole sequence. False if later tokens change which keys a row
  // sees, as in LSH attention; step() then returns the last row of the causal forward over the tokens so far.
  bool steps_are_rows_of_forward = true;
  // Whether step() computes the attention of all tokens so far again, from stored tokens, and not only that of the new one.
  bool steps_recompute_prefix = false;
  // Whether a NaN in the inputs affects exactly the output rows that see it. False if hidden values are multiplied by zero, since
  // 0 · NaN is NaN.
  bool nan_reaches_its_rows_only = true;
  // Whether the output depends on parameters that a model trains, such as Linformer's projections. Here they are drawn at random,
  // so that the distance of the output from exact attention says nothing about the trained method, and is not recorded.
  bool learned = false;
  // The tensors that the method reads. For a tensor of another shape than kInputs says, a method gives a row of its own with the
  // same member.
  std::vector<InputSpec> inputs = query_key_value();
  std::vector<at::ScalarType> dtypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};  // float16 on CUDA only
  std::vector<c10::DeviceType> devices = {c10::DeviceType::CPU, c10::DeviceType::CUDA};
};

// Rows of exact attention, with which the output rows of a method are compared to say how good they are.
struct ExactAttention {
  at::Tensor output;   // [B,H,R,M], float64
  at::Tensor weights;  // [B,H,R,L], float64: the share of each key in each row; zeros where the mask hides a key
};

// A number that a method reports about itself in addition to its results.
struct DiagnosticSpec {
  // The name in records. It must differ from every record column. Methods that report the same name must have equal
  // specifications.
  std::string name;
  std::string unit;
  std::string description;
};

// The predicted cost of one call of a protocol, for predictions and plausibility checks. For Protocol::decode the call is the
// step() that follows query_len tokens, and its inputs are q, k and v of one token.
struct Cost {
  double flops = 0;       // floating-point operations; a multiply-add counts as two; NaN if unknown
  double min_bytes = 0;   // lower bound of the memory traffic: every input is read once and every result is written once
  double peak_bytes = 0;  // maximum of the memory in use at once, including the inputs and the decoding state
};

// The predicted cost of a call whose shared heads are repeated, from that of the same call without shared heads.
Cost cost_with_repeated_heads(const Cost& of_all_heads, const Problem& problem, Protocol protocol);

// The accepted relative error of a result in this dtype: its largest difference from the float64 reference, divided by the
// reference's largest entry. Throws c10::ValueError for a dtype that is not floating point.
double error_tolerance(at::ScalarType dtype);

class AttentionMethod {
 public:
  AttentionMethod() = default;
  AttentionMethod(const AttentionMethod&) = delete;
  AttentionMethod& operator=(const AttentionMethod&) = delete;
  virtual ~AttentionMethod() = default;

  // The attention output [B,U,N,M] in the dtype of the inputs. The output of a query that sees no key is zero, and its gradients
  // are finite. Throws c10::ValueError if shapes, dtypes or devices disagree (the message names the argument and its value) or if
  // the method does not support the problem (the message says why).
  at::Tensor forward(const Inputs& inputs);
  at::Tensor forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask = {}) {
    return forward(Inputs{q, k, v, mask});
  }

  virtual Capabilities capabilities() const { return {}; }

  // Whether the method computes float16 on this type of device. LibTorch's operators do so on CUDA alone.
  virtual bool takes_float16(c10::DeviceType device) const { return device == c10::DeviceType::CUDA; }

  // capabilities().inputs, which every call needs.
  const std::vector<InputSpec>& inputs() const;

  // The accepted relative error of this method. The default is attn::error_tolerance().
  virtual double error_tolerance(at::ScalarType dtype) const;

  // Why the method cannot compute this problem; nothing if it can. The default is derived from capabilities().
  virtual std::optional<std::string> why_unsupported(const Problem& problem, Protocol protocol) const;

  // The predicted cost of one call, for a problem that the method supports.
  virtual Cost cost(const Problem& problem, Protocol protocol) const = 0;

  // The output rows at the query positions `rows` (int64 [R]) as [B,H,R,M], by the method's definition in float64, written for
  // clarity and never timed. The inputs are float64 and hold whole sequences; the result is differentiable in each of them. They
  // hold all batch entries and heads of the call, or a part of them that fits the memory, which inputs.part then names. Heads
  // that are shared are repeated (Inputs::with_all_heads()).
  virtual at::Tensor reference(const Inputs& inputs, const at::Tensor& rows) const = 0;

  // The exact attention that the quality of this method is measured against, with the arguments of reference(): softmax attention
  // of the same inputs, unless the method overrides it because it computes from other ones. LSH attention has q = k. Nothing for
  // a method that names no such attention.
  virtual std::optional<ExactAttention> exact_attention(const Inputs& inputs, const at::Tensor& rows) const;

  // Declares the diagnostics that diagnostics() may report. Reporting any other is an error.
  virtual std::vector<DiagnosticSpec> diagnostic_specs() const { return {}; }
  // The (name, value) pairs that the method reports about itself for the record. The arguments are those of reference().
  virtual std::vector<std::pair<std::string, double>> diagnostics(const Inputs& inputs, const at::Tensor& rows) const {
    (void)inputs, (void)rows;
    return {};
  }

  // Decoding processes a batch of sequences token by token; each token sees itself and the tokens before it. For token i, step()
  // returns row i of the causal forward over the whole sequence or, where capabilities().steps_are_rows_of_forward is false, the
  // last row of the causal forward over the first i + 1 tokens. The mask of the tokens must be causal and without key lengths.

  // An empty decoding state. `problem` gives the sizes; its key_len, which equals query_len, is the maximum number of tokens.
  // Throws c10::ValueError with the reason of why_unsupported().
  std::unique_ptr<DecodingState> begin_decoding(const Problem& problem) const;
  // Adds one token to the state, q and k [B,H,1,D] and v [B,H,1,M], and returns its output [B,H,1,M]. Throws c10::ValueError if
  // shapes, dtype or device differ from those of the state, if the state belongs to another method, or if it is full.
  at::Tensor step(DecodingState& state, const Inputs& token);
  // A step that allocates nothing, for the token in `token`, q and k [B,H,1,D] and v [B,H,1,M], whose output goes to `output`
  // [B,H,1,M]; `workers` threads may run it. Each of these tensors has contiguous rows and stays in the memory that it has now.
  // The state must outlive the result, which holds for the method as well. Null if the method has no such step for these tensors.
  // Throws as step() does, except for a full state.
  std::unique_ptr<BoundStep> bind_step(DecodingState& state, const Inputs& token, const at::Tensor& output,
                                       int64_t workers) const;
  // Adds T tokens, q and k [B,H,T,D] and v [B,H,T,M], without computing their outputs. Throws as step() does.
  void extend(DecodingState& state, const Inputs& tokens);
  // Adds the first T tokens to an empty state and returns their outputs [B,H,T,M]. Throws as step() does, and if the state is not
  // empty unless capabilities().prefill_continues.
  at::Tensor prefill(DecodingState& state, const Inputs& tokens);
  // The predicted size in bytes of the decoding state of this problem after `position` tokens; NaN if the method cannot say.
  virtual double state_bytes(const Problem& problem, int64_t position) const {
    (void)problem, (void)position;
    return 0;
  }

  // The text that the method was made from, including options: "linear-chunked:chunk=256".
  const std::string& label() const { return label_; }
  void set_label(std::string label) { label_ = std::move(label); }

  // The implementation that the last call ran, for the record: "aten/chunked", "sdpa/flash_attention".
  const std::string& implementation() const { return implementation_; }

 protected:
  // Computes the result of forward(), which has checked that the inputs agree and that the method supports their problem.
  virtual at::Tensor attend(const Inputs& inputs) = 0;

  // Methods with capabilities().decoding override the first three of these. They are called by begin_decoding(), extend(), step()
  // and prefill(), in this order, which check that the tokens fit the state and advance its position() afterwards.
  virtual std::unique_ptr<DecodingState> make_state(const Problem& problem) const;
  virtual void absorb(DecodingState& state, const Inputs& tokens);
  virtual at::Tensor decode(DecodingState& state, const Inputs& token);
  // bind_step() has checked the tensors.
  virtual std::unique_ptr<BoundStep> make_bound_step(DecodingState& state, const Inputs& token, const at::Tensor& output,
                                                     int64_t workers) const {
    (void)state, (void)token, (void)output, (void)workers;
    return nullptr;
  }
  // The default calls attend(), then absorb().
  virtual at::Tensor fill(DecodingState& state, const Inputs& tokens);

  // Methods call this in every call with the implementation that they run; implementation() returns it.
  void ran(std::string implementation) { implementation_ = std::move(implementation); }

 private:
  // problem_of(inputs), after the check of the further tensors that the method reads. A tensor that it does not read is an
  // error, except for k, which then must agree with the others.
  Problem checked_problem_of(const Inputs& inputs) const;
  void check_tokens(const DecodingState& state, const Inputs& tokens) const;
  void check_room(const DecodingState& state, int64_t tokens) const;

  std::string label_ = "attention method";
  std::string implementation_;
  mutable std::vector<InputSpec> inputs_;  // empty until inputs() is called
};

}  // namespace attn
