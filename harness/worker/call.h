// The inputs and the results of one call of a method.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "attn/decoding.h"
#include "attn/inputs.h"

namespace attnbench {

struct CallInputs : attn::Inputs {
  at::Tensor grad_output = {};  // [B,H,N,M], the gradient of the output; only for calls that compute gradients
  // Whether rounding the inputs may change the results by much. They are then compared with the reference within what such a
  // change makes of it (Agreement::sensitivity).
  bool ill_conditioned = false;
};

struct Results {
  at::Tensor output;                                     // [B,H,N,M], or [B,H,T,M] if `decoded`
  at::Tensor grad_q = {}, grad_k = {}, grad_v = {};      // in the shapes of q, k and v; only of calls that compute gradients
  std::shared_ptr<attn::DecodingState> state = nullptr;  // the state after the last token; only of calls that decode
  // Whether the output was computed step by step. Its rows then belong to the last T tokens of the inputs, and each was computed
  // from the tokens up to and including its own.
  bool decoded = false;
};

// Bytes of the elements of a tensor; 0 if it is undefined.
inline int64_t bytes_of(const at::Tensor& tensor) { return tensor.defined() ? int64_t(tensor.nbytes()) : 0; }

// Bytes of all tensors, key lengths included.
inline int64_t bytes_of(const attn::Inputs& inputs) {
  auto bytes = bytes_of(inputs.mask.key_lengths.value_or(at::Tensor()));
  for (const auto member : attn::kInputTensors) bytes += bytes_of(inputs.*member);
  return bytes;
}
inline int64_t bytes_of(const CallInputs& inputs) {
  return bytes_of(static_cast<const attn::Inputs&>(inputs)) + bytes_of(inputs.grad_output);
}

// Bytes of the output and the gradients, without the state.
inline int64_t bytes_of(const Results& results) {
  return bytes_of(results.output) + bytes_of(results.grad_q) + bytes_of(results.grad_k) + bytes_of(results.grad_v);
}

}  // namespace attnbench
