// The inputs and the results of one call of a method.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "attn/decoding.h"
#include "attn/input_spec.h"
#include "attn/inputs.h"

namespace attnbench {

struct CallInputs : attn::Inputs {
  at::Tensor grad_output = {};  // [B,H,N,M], the gradient of the output; only for calls that compute gradients
  // Whether rounding errors of the inputs may change the results by much. The comparison with the reference then allows for the
  // error that such a change causes in the reference itself (Agreement::excess_error).
  bool ill_conditioned = false;
};

struct Results {
  at::Tensor output;            // [B,H,N,M], or [B,H,T,M] if `decoded`
  attn::Inputs gradients = {};  // gradients.q is that of q, and so on; only for calls that compute gradients
  std::shared_ptr<attn::DecodingState> state = nullptr;  // the state after the last token; only for calls that decode
  // Whether the output was computed step by step. Its rows then belong to the last T tokens of the inputs, and each was computed
  // from the tokens up to and including its own.
  bool decoded = false;
};

// The gradients of the inputs in `specs` that are defined and differentiable, from the gradient of the output. The gradient of an
// input that the output does not depend on is zero.
attn::Inputs gradients_of(const at::Tensor& output, const at::Tensor& grad_output, const attn::Inputs& inputs,
                          const std::vector<attn::InputSpec>& specs);

// Bytes of the elements of a tensor; 0 if it is undefined.
inline int64_t bytes_of(const at::Tensor& tensor) { return tensor.defined() ? int64_t(tensor.nbytes()) : 0; }

// Bytes of all tensors, including the key lengths and the borders of packed sequences.
inline int64_t bytes_of(const attn::Inputs& inputs) {
  auto bytes = bytes_of(inputs.mask.key_lengths.value_or(at::Tensor())) + bytes_of(inputs.mask.cu_seqlens.value_or(at::Tensor()));
  for (const auto& spec : attn::kInputs) bytes += bytes_of(inputs.*spec.member);
  return bytes;
}
inline int64_t bytes_of(const CallInputs& inputs) {
  return bytes_of(static_cast<const attn::Inputs&>(inputs)) + bytes_of(inputs.grad_output);
}

// Bytes of the output and the gradients, without the state.
inline int64_t bytes_of(const Results& results) { return bytes_of(results.output) + bytes_of(results.gradients); }

}  // namespace attnbench
