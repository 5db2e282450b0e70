// The interface of kernels that compute LSH attention, and the registry of those that there are.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <optional>
#include <string>
#include <tuple>

#include "attn/implementations.h"
#include "attn/problem.h"

namespace attn {

// What LSH attention is computed of. Tensors have any strides; qk and v have one dtype and device.
struct LshArguments {
  at::Tensor qk, v;  // [B,H,N,D], [B,H,N,M]
  int64_t chunk;     // positions in a chunk
  bool causal;
  std::optional<at::Tensor> key_lengths;  // int64 [B]
  bool trax;                              // the profile: trax, otherwise fast-transformers
};

// What the forward pass returns, and the backward pass takes.
struct LshForward {
  at::Tensor output;       // [B,H,N,M] in the dtype of qk
  at::Tensor log_sum_exp;  // float64 [B,H,R,N]: of each row in each round, by position
  at::Tensor order;        // int64 [B,H,R,N]: the positions in the order of (bucket, position), hidden ones last
};

// Computes LSH attention and its gradients without composing them of ATen operations.
class LshImplementation {
 public:
  virtual ~LshImplementation() = default;

  // As in options and records: "avx512".
  virtual std::string name() const = 0;

  // rotations and bucket_factors: as of lsh_buckets().
  virtual LshForward forward(const LshArguments& arguments, const at::Tensor& rotations,
                             at::OptionalIntArrayRef bucket_factors) const = 0;
  // grad_qk and grad_v. shares: float64 [B·H,R,N], the share of each round in the output.
  virtual std::tuple<at::Tensor, at::Tensor> backward(const LshArguments& arguments, const at::Tensor& grad_output,
                                                      const LshForward& result, const at::Tensor& shares) const = 0;

  // The memory that it uses at most beside its inputs, results included, for predictions.
  virtual double peak_bytes(const Problem& problem, int64_t rounds, bool trax, bool backward) const = 0;
};

// The CPU's implementations are "avx512", "avx2" and "portable" (attn/lsh/cpu/implementation.h), CUDA's is "cuda"
// (attn/lsh/cuda/implementation.cpp).
using LshRegistry = ImplementationRegistry<LshImplementation, ImplementationRequest>;
LshRegistry& lsh_implementations();

}  // namespace attn
