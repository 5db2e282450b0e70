// One call of a method as the worker makes it: what the call is made on, and what it gives.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "attn/decoding.h"
#include "attn/inputs.h"

namespace attnbench {

struct CallInputs : attn::Inputs {
  at::Tensor grad_output = {};  // [B,H,N,M], the gradient of the output; only for calls that compute gradients
};

struct Results {
  at::Tensor output;                                     // [B,H,N,M], or [B,H,T,M] if `decoded`
  at::Tensor grad_q = {}, grad_k = {}, grad_v = {};      // only of calls that compute gradients
  std::shared_ptr<attn::DecodingState> state = nullptr;  // only of calls that decode
  // Whether the output was computed step by step. Its rows are then those of the last T tokens of the inputs, and each was
  // computed from the tokens up to its own.
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
