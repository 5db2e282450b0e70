// MultiHeadAttention: linear projections around any attention method of the registry.
//
//   MultiHeadAttention attention({.method = "linear", .width = 256, .heads = 8, .head_dim = 32});
//   const auto y = attention(x, attn::Mask{.causal = true});  // x and y are [batch, length, 256]
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <string>

#include "attn/inputs.h"
#include "attn/mask.h"
#include "attn/method.h"

namespace experiments {

struct AttentionOptions {
  std::string method;  // as attn::make_method() takes it: "softmax", "lsh:rounds=4,chunk=29"
  int64_t width = 0;   // the number of features of inputs and outputs
  int64_t heads = 0;
  int64_t head_dim = 0;  // the dimension of queries, keys and values in each head
  uint64_t seed = 0;     // for methods that draw random numbers, at most attn::kMaxSeed; see set_seed()
};

// Whether the method that this text names has the option `seed`, as LSH attention and random features have. Throws
// c10::ValueError for an unknown method.
bool has_seed(const std::string& method);

// The seed of layer number `layer` of a model with this seed: a number from 0 to attn::kMaxSeed that differs between layers.
uint64_t layer_seed(uint64_t model_seed, int64_t layer);

// Multi-head attention of "Attention Is All You Need" (1706.03762, section 3.2.2): concat(head_1 … head_H) W_O + b_O, where head
// h attends with the h-th part of x W_Q + b_Q, x W_K + b_K and x W_V + b_V. The weights are initialised as those of
// torch::nn::Linear. No dropout is applied to the attention weights, because most methods never compute them.
//
// Methods that read gates (attn/recurrent) get them from x as in Gated DeltaNet (2412.06464) and Kimi Delta Attention
// (2510.26692):
//   β = sigmoid(x W_β),  g = −e^a · softplus(x W_g + b),
// where W_g gives a number for each head or, if features have decays, one for each feature, then by way of head_dim numbers. a is
// [heads] and e^a begins uniform in [0.01, 16]; softplus(b) begins between 0.001 and 0.1, uniform in its logarithm. The short
// convolution and the gate of the output that layers of these articles also have are left out, so that models of all methods
// differ in their attention alone.
//
// Recurrent methods are causal by themselves. With a mask that is not causal they run over x and over its reverse, with the same
// projections and gates, and the results are added. With key lengths, the reverse of a sequence begins at its own last position.
//
// LSH attention uses the queries as keys and ignores k. Its key projection exists all the same, as in the authors' code, so that
// models of all methods have equal parameter counts, but it receives no gradient.
class MultiHeadAttentionImpl : public torch::nn::Module {
 public:
  // Throws c10::ValueError for a size below 1, an unknown method, bad options of the method, and a method text that sets `seed`,
  // which AttentionOptions::seed replaces.
  explicit MultiHeadAttentionImpl(AttentionOptions options);

  // x [B,N,width] → [B,N,width]. mask.key_lengths is on the device of x. The outputs of positions at or beyond a key length are
  // computed like those of others and mean nothing. Throws c10::ValueError for another shape, and where the method does.
  at::Tensor forward(const at::Tensor& x, const attn::Mask& mask);

  // What the method reads of x [B,N,width], with this mask.
  attn::Inputs inputs_of(const at::Tensor& x, const attn::Mask& mask);

  // Makes the method again with this seed, at most attn::kMaxSeed; does nothing if the method has no seed.
  //
  // An LSH method draws its random rotations from its seed alone and uses the same ones in every forward, while Reformer draws
  // new ones in every forward. For that, call this before each update, with a seed that follows from the number of the update:
  // then a training that goes on from a checkpoint draws the same hashes as one that was never interrupted. Calling it between a
  // forward and its backward is safe. It costs looking the method up, and in the next forward the drawing of head_dim · rounds ·
  // buckets/2 normal numbers on the CPU and their copy to the device of x.
  void set_seed(uint64_t seed);

  const AttentionOptions& options() const { return options_; }
  // The implementation that the last forward ran, such as "kernel/avx512".
  const std::string& implementation() const { return method_->implementation(); }
  // The method with its current seed. set_seed() replaces it.
  attn::AttentionMethod& method() const { return *method_; }

  // Whether the method reads more than queries, keys and values.
  bool has_gates() const { return !gate.is_empty() || !beta.is_empty(); }

  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, output{nullptr};
  // Of methods that read g and beta: W_g, which follows `gate_rank` if features have decays, and W_β, all without bias.
  torch::nn::Linear gate_rank{nullptr}, gate{nullptr}, beta{nullptr};
  at::Tensor log_decay, gate_bias;  // a [heads], and b of as many numbers as W_g gives

 private:
  void make_method();
  void make_gates();
  at::Tensor attend(const attn::Inputs& inputs);

  AttentionOptions options_;
  std::shared_ptr<attn::AttentionMethod> method_;
};
TORCH_MODULE(MultiHeadAttention);

}  // namespace experiments
