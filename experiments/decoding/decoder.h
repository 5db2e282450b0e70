// Decoder: runs a SequenceModel token after token, as images are generated.
//
//   const auto decoder = make_decoder(model, {.batch = 64, .max_tokens = 783});
//   const auto& parameters = decoder->step(bytes);  // int64 [64] → float32 [64, 30]
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "experiments/nn/transformer.h"

namespace experiments {

struct DecoderOptions {
  int64_t batch = 1;
  int64_t max_tokens = 0;  // the maximum length of a sequence
  // What computes everything but the attention: an instruction set of the CPU ("avx512", "avx2", "portable") for the decoder's
  // own kernels, "modules" for the modules of the model, or "auto" for the fastest instruction set where the model is float32 on
  // the CPU and for modules otherwise. Methods that recompute the prefix or read gates always run modules.
  std::string kernel = "auto";
  // For a model on a GPU: records what a function launches there, without running it, and returns a function that runs it
  // (attnbench::Device::capture()). If it is given, a step of methods whose steps can be replayed
  // (attn::DecodingState::steps_can_be_replayed()) is one CUDA graph.
  std::function<std::function<void()>(const std::function<void()>&)> capture = {};
};

// There are two kinds of decoders.
//  - Methods whose state holds what a step needs (Capabilities::decoding without steps_recompute_prefix) have one state for each
//    layer: S and Z of linear attention, or a cache of keys and values.
//  - All others compute the model's forward over the whole prefix again in every step: softmax, LSH, and methods without
//  decoding.
//
// A decoder reads the weights from the model in every step, so changes of the weights take effect in the next step. What a state
// or a prefix holds of earlier tokens was computed with the old weights; call reset() after a change.
//
// On a GPU most of a step's time would be the launches of its kernels, so a step of linear attention is recorded as one CUDA
// graph, which is replayed for each token (DecoderOptions::capture). The first token of a decoder runs its kernels, as
// initialisation cannot be recorded, and the next one is recorded; so is the first one after reset(), which begins with other
// states, and after weights have moved to other memory. The caches of stateful-softmax and stateful-sdpa are read up to the last
// token, so their steps do more work from token to token, which a graph cannot: they run kernel by kernel.
//
// A step allocates no memory if kernels compute it and the method has a bound step (AttentionMethod::bind_step()), as linear
// attention and stateful-softmax have for float32 on the CPU.
class Decoder {
 public:
  Decoder(SequenceModel model, DecoderOptions options);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  virtual ~Decoder() = default;

  // Adds one token to each sequence, tokens int64 [batch] on the model's device, and returns the model's output at this position,
  // [batch, outputs] in the dtype of the model. It is valid until the next call. Throws c10::ValueError for another shape or
  // dtype, for tokens out of range (on the CPU), if the sequences have max_tokens tokens already, and if the model is in training
  // mode or has moved to another device or dtype.
  const at::Tensor& step(const at::Tensor& tokens);
  // Adds the first T ≥ 1 tokens of each sequence at once, tokens int64 [batch, T], and returns the output at the last of them.
  // Throws as step() does, and if there are tokens already.
  const at::Tensor& prefill(const at::Tensor& tokens);
  // Begins new sequences.
  void reset();

  const SequenceModel& model() const { return model_; }
  const DecoderOptions& options() const { return options_; }
  // The number of tokens of each sequence so far.
  int64_t position() const { return position_; }
  // What the last step or prefill ran, such as "decoder/avx512 + kernel/avx512": the first part computes everything but the
  // attention, the second is the implementation of the attention method.
  virtual std::string implementation() const = 0;
  // The memory of what the decoder stores about the tokens so far.
  virtual int64_t state_bytes() const = 0;

 protected:
  virtual void decode(const at::Tensor& tokens) = 0;   // [batch], sets output_
  virtual void prepare(const at::Tensor& tokens) = 0;  // [batch, T], sets output_
  virtual void clear() = 0;

  at::TensorOptions tensor_options() const;

  SequenceModel model_;
  DecoderOptions options_;
  at::Tensor output_;

 private:
  void check(const at::Tensor& tokens, at::IntArrayRef sizes, int64_t count) const;

  at::ScalarType dtype_;  // of the model when the decoder was made
  at::Device device_;
  int64_t position_ = 0;
};

// The decoder for the model's method. It shares the model, which must be in evaluation mode. Throws c10::ValueError for sizes
// below 1, for a kernel that is not available or does not compute the model, and where the method refuses to decode.
std::unique_ptr<Decoder> make_decoder(const SequenceModel& model, const DecoderOptions& options);

}  // namespace experiments
