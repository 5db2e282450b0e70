// Recurrent attention: linear attention whose state decays, and whose update may follow the delta rule. It is a function of
// tensors, with gradients; the operator attn::recurrent_attention computes it.
//
// The state S [K,V] of a head decays and grows with each position t, and the output is read from the new state:
//   S ← e^(g_t) S,     S ← S + k_t u_tᵀ,     output_t = scale · Sᵀq_t
// With the rule "add", u_t = v_t. With the rule "delta", u_t = β_t (v_t − Sᵀk_t): the share β_t of the value Sᵀk_t that the state
// has stored for the key k_t is replaced by v_t. g_t is one number for a head, or [K] with a decay for each feature of the keys,
// which is that of a row of S: S ← diag(e^(g_t)) S. Models by their rule and gates:
//   add, g constant for each head    RetNet (2307.08621), Lightning Attention (2405.17381)
//   add, g of the inputs             Mamba-2's SSD (2405.21060), gated linear attention with one gate for a head
//   delta                            DeltaNet (2406.06484)
//   add, g of each feature           gated linear attention (2312.06635)
//   delta, g of the inputs           Gated DeltaNet (2412.06464)
//   delta, g of each feature         Kimi Delta Attention (2510.26692)
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <utility>

namespace attn {

struct RecurrentAttentionOptions {
  // g [B,W,T] or [B,W,T,K], and beta [B,W,T], in the accumulator dtype (float64 for float64, otherwise float32), of any strides.
  // g is the natural logarithm of the decay, at most 0; −∞ clears the state or a row of it, and its gradient is 0. Without g the
  // state does not decay; without beta β is 1. beta is refused with the rule "add".
  std::optional<at::Tensor> g = {}, beta = {};
  // The state before the first position, [B,W,K,V] in the accumulator dtype; zero by default.
  std::optional<at::Tensor> initial_state = {};
  // int64 [N+1], rising from 0 to T, for a batch of 1: the positions at which N packed sequences begin and end. Each has a state
  // of its own, so that states are [N,W,K,V].
  std::optional<at::Tensor> cu_seqlens = {};
  std::string rule = "delta";
  std::optional<double> scale = {};  // K^-½ by default
  // Whether q and k are divided by their lengths, √(Σ x² + 1e-6), first.
  bool normalize = false;
  // "auto", "composed" or the name of kernels, see ImplementationRequest.
  std::string implementation = "auto";
};

// The output [B,W,T,V] in the dtype of q, and the state after the last position, [B,W,K,V] in the accumulator dtype. q and k are
// [B,H,T,K] and v is [B,W,T,V]; H divides W, and head w of v, g and beta reads head w / (W/H), rounded down, of q and k.
// Both results can be differentiated once, by q, k, v, g, beta and initial_state. Throws c10::ValueError if shapes, dtypes or
// devices disagree, for an unknown rule, and as ImplementationRegistry::find() does.
std::pair<at::Tensor, at::Tensor> recurrent_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                      const RecurrentAttentionOptions& options = {});

}  // namespace attn
