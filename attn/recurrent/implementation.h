// RecurrentImplementation, the interface of what computes recurrent attention, and the registry of its implementations.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>
#include <c10/core/SymIntArrayRef.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attn/decoding.h"
#include "attn/implementations.h"

namespace attn {

// The arguments of recurrent_attention(), checked and with their defaults; attn/recurrent/recurrent_attention.h documents them.
struct RecurrentArguments {
  at::Tensor q, k, v;
  std::optional<at::Tensor> g, beta, initial_state, cu_seqlens;
  bool delta = true;
  double scale = 1;
  bool normalize = false;

  // Whether g is [B,W,T,K], with a decay for each feature of the keys.
  bool has_feature_gates() const { return g && g->dim() == 4; }
};

// The results of the forward pass: the output [B,W,T,V], the final state of each sequence, and the states that the backward pass
// needs, whose sizes checkpoint_sizes() gives.
struct RecurrentResults {
  at::Tensor output, final_state, checkpoints;
};

// The gradients of the arguments. Those of arguments that are not given are undefined.
struct RecurrentGradients {
  at::Tensor q, k, v, g, beta, initial_state;
};

// Computes recurrent attention, its gradients and decoding steps.
class RecurrentImplementation {
 public:
  virtual ~RecurrentImplementation() = default;

  // The name in options and records, such as "avx512".
  virtual std::string name() const = 0;

  virtual RecurrentResults forward(const RecurrentArguments& arguments, bool gradients) const = 0;
  // The final_state of forward(), without the work for outputs. Of the argument q only the sizes are used.
  virtual at::Tensor end_state(const RecurrentArguments& arguments) const = 0;
  // The gradients of the results may be undefined, which stands for zeros.
  virtual RecurrentGradients backward(const RecurrentArguments& arguments, const at::Tensor& checkpoints,
                                      const at::Tensor& grad_output, const at::Tensor& grad_final_state) const = 0;
  // Adds one token to `state` [B,W,K,V], contiguous, in place, and returns its output [B,W,1,V]. Records no gradients.
  // initial_state and cu_seqlens of the arguments are not read.
  virtual at::Tensor step(const RecurrentArguments& token, const at::Tensor& state) const = 0;
  // A step for tensors that stay in the same memory, see AttentionMethod::bind_step().
  virtual std::unique_ptr<BoundStep> bind_step(const RecurrentArguments& token, const at::Tensor& output, const at::Tensor& state,
                                               int64_t workers) const = 0;

  // The bytes that the computation needs beside arguments and results, for predictions of memory. `feature_gates` says whether
  // each feature of the keys has a decay.
  virtual double working_bytes(const Problem& problem, bool feature_gates, bool backward) const = 0;
};

// How many sequences the arguments hold: the batch entries, or those that cu_seqlens packs into one.
inline c10::SymInt sequence_count(const RecurrentArguments& a) {
  return a.cu_seqlens ? a.cu_seqlens->sym_size(0) - 1 : a.q.sym_size(0);
}

// The sizes of the checkpoints: [B,W,count,numbers], where `numbers` are those of a padded state (checkpoint_numbers()), and {0}
// without gradients. They are the same for all kernels, because the operators must know them for meta tensors, before an
// implementation is chosen. The operators use {0} for "composed", which has no checkpoints.
std::vector<c10::SymInt> checkpoint_sizes(const RecurrentArguments& arguments, bool gradients);

// An uninitialized tensor of the sizes [B,heads,T,dim] and the options of `like`, in whose memory heads and positions have the
// same order as in that of `like`. So inputs that are stored as [batch, time, heads, dim] give results that are stored in this
// way.
at::Tensor empty_in_layout_of(const at::Tensor& like, c10::SymIntArrayRef sizes);

// The implementations for the CPU, which attn/recurrent/cpu/implementation.cpp registers, are "avx512", "avx2", "neon" and
// "portable". There are none for CUDA.
using RecurrentRegistry = ImplementationRegistry<RecurrentImplementation, ImplementationRequest>;
RecurrentRegistry& recurrent_implementations();

}  // namespace attn
