// The interface of the implementations of LSH attention, and the registry that finds one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <optional>
#include <string>
#include <tuple>

#include "attn/implementations.h"
#include "attn/lsh/settings.h"
#include "attn/problem.h"

namespace attn {

// The checked arguments of LSH attention. Tensors may have any strides; qk and v have one dtype and one device.
struct LshArguments {
  at::Tensor qk, v;  // [B,H,N,D], [B,H,N,M]
  int64_t chunk;     // positions in a chunk
  bool causal;
  std::optional<at::Tensor> key_lengths;  // int64 [B]; values may lie outside 0…N
  bool trax;                              // whether the profile is trax; otherwise it is fast-transformers
};

// The results of the forward pass, which the backward pass reads.
struct LshForward {
  at::Tensor output;       // [B,H,N,M] in the dtype of qk
  at::Tensor log_sum_exp;  // float64 [B,H,R,N], by position: of each query's logits in each round
  at::Tensor order;        // int64 [B,H,R,N]: the positions sorted by (bucket, position), hidden ones last
};

// Computes LSH attention and its gradients without composing them of ATen operations.
class LshImplementation {
 public:
  virtual ~LshImplementation() = default;

  // The name in options and records, such as "avx512".
  virtual std::string name() const = 0;

  // rotations and bucket_factors are those of lsh_buckets().
  virtual LshForward forward(const LshArguments& arguments, const at::Tensor& rotations,
                             at::OptionalIntArrayRef bucket_factors) const = 0;
  // Returns grad_qk and grad_v. `shares` comes from lsh_round_shares(): float64 [B·H,R,N], by position, the share of each round
  // in a row's output.
  virtual std::tuple<at::Tensor, at::Tensor> backward(const LshArguments& arguments, const at::Tensor& grad_output,
                                                      const LshForward& result, const at::Tensor& shares) const = 0;

  // The predicted maximum of the memory in use beside the inputs, in bytes, including the results.
  virtual double peak_bytes(const Problem& problem, const LshSettings& settings, bool backward) const = 0;
};

// The implementations for the CPU are "avx512", "avx2", "neon" and "portable" (attn/lsh/cpu/implementation.cpp). The one for
// CUDA is "cuda" (attn/lsh/cuda/implementation.cpp). All register themselves here.
using LshRegistry = ImplementationRegistry<LshImplementation, ImplementationRequest>;
LshRegistry& lsh_implementations();

}  // namespace attn
