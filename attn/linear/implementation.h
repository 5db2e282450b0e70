// LinearImplementation, the interface of kernels that compute linear attention, and the registry of its implementations.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "attn/decoding.h"
#include "attn/implementations.h"
#include "attn/linear/feature_map.h"
#include "attn/problem.h"

namespace attn {

// The arguments of linear attention. Tensors have arbitrary strides; q, k and v have the same dtype and device.
struct LinearArguments {
  at::Tensor q, k, v;  // [B,H,N,D], [B,H,L,D], [B,H,L,M]
  bool causal;
  std::optional<at::Tensor> key_lengths;  // int64 [B]
  FeatureMapSpec map;
  double epsilon;  // is added to each normalizer
};

// The state of decoding: S [B,H,F,M] and Z [B,H,F], contiguous, in the accumulator dtype. For maps with scales Z is [B,H,F+1],
// and its last entry is the state's scale: the logarithm of the factor that S and Z are relative to, or kNoScale in an empty
// state.
struct LinearDecodingState {
  at::Tensor s, z;
};

// Computes linear attention, its gradients and decoding steps, without composing them of ATen operations.
class LinearImplementation {
 public:
  virtual ~LinearImplementation() = default;

  // The name in options and records, such as "avx512".
  virtual std::string name() const = 0;
  // The name of the kernels that compute decoding steps, if they are others.
  virtual std::string step_name() const { return name(); }

  // The output [B,H,N,M] in the dtype of q, and the normalizer in the accumulator dtype: φ(q)·Z + ε of each row, [B,H,N,1]. For
  // maps with scales it is [B,H,N,2]: φ(q)·Z + ε relative to the scales of query and state, and the state's scale.
  virtual std::tuple<at::Tensor, at::Tensor> forward(const LinearArguments& arguments) const = 0;
  // grad_q, grad_k and grad_v, contiguous, from the gradient of the output and the normalizer that forward() returned.
  virtual std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const LinearArguments& arguments, const at::Tensor& grad_output,
                                                                  const at::Tensor& normalizer) const = 0;

  // Adds T tokens, k [B,H,T,D] and v [B,H,T,M], to the state in place.
  virtual void add(const at::Tensor& k, const at::Tensor& v, const LinearDecodingState& state,
                   const FeatureMapSpec& map) const = 0;
  // Adds one token and returns its output [B,H,1,M]. Records no gradients.
  virtual at::Tensor step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LinearDecodingState& state,
                          const FeatureMapSpec& map, double epsilon) const = 0;

  // A step for tensors that stay in the same memory, see AttentionMethod::bind_step(); null where there is none.
  virtual std::unique_ptr<BoundStep> bind_step(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                               const at::Tensor& output, const LinearDecodingState& state,
                                               const FeatureMapSpec& map, double epsilon, int64_t workers) const {
    (void)q, (void)k, (void)v, (void)output, (void)state, (void)map, (void)epsilon, (void)workers;
    return nullptr;
  }

  // How many numbers the states that exist at once have, for predictions of memory; `features` is F.
  virtual double state_numbers(const Problem& problem, int64_t features, bool backward) const = 0;
};

struct LinearRequest : ImplementationRequest {
  FeatureMapKind map;
  LinearUpdate update = update_for(map);

  bool operator==(const LinearRequest&) const = default;
};

// Why an implementation that computes some maps and, with each, the update that update_for() gives does not compute the request;
// empty if it does.
std::string why_not_map(const LinearRequest& request, bool computes_map);

// The implementations for the CPU are "amx", "avx512", "avx2", "neon" and "portable" (attn/linear/cpu/implementation.cpp), those
// for CUDA are "cuda", "cuda-tf32" and "cuda-plain" (attn/linear/cuda/implementation.cpp). All register themselves here.
using LinearRegistry = ImplementationRegistry<LinearImplementation, LinearRequest>;
LinearRegistry& linear_implementations();

}  // namespace attn
