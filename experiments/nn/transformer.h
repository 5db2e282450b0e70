// The paper's transformer encoder around any attention method, and the two models that are made of it: SequenceModel for the copy
// task and images, SpeechModel for speech.
//
//   SequenceModel model(image_model(/*layers=*/8, "linear"));
//   const auto parameters = model(bytes);  // int64 [batch, length] → [batch, length, 30]
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "attn/mask.h"
#include "experiments/nn/attention.h"
#include "experiments/nn/positions.h"

namespace experiments {

struct TransformerOptions {
  std::string method;  // as attn::make_method() takes it, without the option seed
  int64_t layers = 0;
  int64_t width = 0;  // d, the number of features of every position
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t feed_forward = 0;  // the width of the hidden layer of the feed-forward network; 0: 4·width
  double dropout = 0.1;      // the probability with which a feature is set to zero in training
  uint64_t seed = 0;         // for methods that draw random numbers; every layer derives a seed of its own with layer_seed()
};

// One layer, x [B,N,width] → [B,N,width], with the normalisations after the sums ("post-norm"):
//   y = LayerNorm(x + dropout(attention(x)));  output = LayerNorm(y + dropout(linear2(dropout(relu(linear1(y)))))).
// All weights have PyTorch's default initialisation.
class TransformerEncoderLayerImpl : public torch::nn::Module {
 public:
  // Ignores options.layers and uses options.seed for its method as it is. Throws as TransformerEncoder does.
  explicit TransformerEncoderLayerImpl(const TransformerOptions& options);
  at::Tensor forward(const at::Tensor& x, const attn::Mask& mask);
  // The part of the layer behind the attention, for decoders, which compute the attention of one token from their state: x is the
  // input of the layer and attended the output of `attention`, both [B,N,width].
  at::Tensor after_attention(const at::Tensor& x, const at::Tensor& attended);

  MultiHeadAttention attention{nullptr};
  torch::nn::Linear linear1{nullptr}, linear2{nullptr};
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};

 private:
  torch::nn::Dropout dropout_{nullptr};
};
TORCH_MODULE(TransformerEncoderLayer);

// The layers, then a last LayerNorm: x [B,N,width] → [B,N,width].
class TransformerEncoderImpl : public torch::nn::Module {
 public:
  // Throws c10::ValueError for a size below 1, a dropout outside [0, 1), and a method text that MultiHeadAttention refuses.
  explicit TransformerEncoderImpl(TransformerOptions options);
  // mask.key_lengths is on the device of x. The outputs of valid positions do not depend on those beyond a key length.
  at::Tensor forward(const at::Tensor& x, const attn::Mask& mask);
  // Gives every layer's method a new seed, layer_seed(seed, layer). See MultiHeadAttention::set_seed() for when and at what cost.
  void set_seed(uint64_t seed);

  const TransformerOptions& options() const { return options_; }

  std::vector<TransformerEncoderLayer> layers;
  torch::nn::LayerNorm norm{nullptr};

 private:
  TransformerOptions options_;
};
TORCH_MODULE(TransformerEncoder);

struct SequenceModelOptions {
  int64_t tokens = 0;           // the number of different input tokens
  int64_t outputs = 0;          // numbers that the model gives for every position
  std::string pattern = "all";  // which of the tokens before it a token sees, as attn::Pattern::parse() takes it
  TransformerOptions encoder;
};

// The model of images: 256 tokens, 30 outputs (logistic_mixture.h), 8 heads of 32, width 256. MNIST's has 8 layers and 6,359,070
// parameters, CIFAR-10's 16 layers and 12,677,150.
SequenceModelOptions image_model(int64_t layers, const std::string& method, uint64_t seed = 0);

// Predicts from every token and those before it that the pattern shows, always with the causal mask: TokenInput,
// TransformerEncoder, and a linear layer. Tokens int64 [B,N] → [B,N,outputs].
class SequenceModelImpl : public torch::nn::Module {
 public:
  // Throws c10::ValueError for sizes that TokenInput or TransformerEncoder refuse, for outputs below 1, and for a pattern that
  // is none. A method that does not support the pattern throws in the first forward.
  explicit SequenceModelImpl(SequenceModelOptions options);
  // Throws as TokenInput::forward() does.
  at::Tensor forward(const at::Tensor& tokens);
  // See TransformerEncoder::set_seed().
  void set_seed(uint64_t seed) { encoder->set_seed(seed); }

  const SequenceModelOptions& options() const { return options_; }

  TokenInput input{nullptr};
  TransformerEncoder encoder{nullptr};
  torch::nn::Linear output{nullptr};

 private:
  SequenceModelOptions options_;
  attn::Mask mask_;
};
TORCH_MODULE(SequenceModel);

struct SpeechModelOptions {
  int64_t features = 40;  // numbers in a frame
  int64_t phones = 0;     // without the blank of CTC
  TransformerOptions encoder;
};

// The model of speech: 9 layers, 6 heads of 32, width 192.
SpeechModelOptions speech_model(int64_t phones, const std::string& method, uint64_t seed = 0);

// Predicts the phone of every frame from the whole utterance: FrameInput, TransformerEncoder without the causal mask, a linear
// layer and log_softmax.
class SpeechModelImpl : public torch::nn::Module {
 public:
  // Throws c10::ValueError for sizes that FrameInput or TransformerEncoder refuse, and for phones below 1.
  explicit SpeechModelImpl(SpeechModelOptions options);
  // features [B,T,features] and the number of valid frames of each utterance, int64 [B] on the CPU with values from 1 to T →
  // log-probabilities [B,T,phones+1], where class 0 is the blank. transpose(0, 1) of them is the input of torch::ctc_loss. The
  // log-probabilities of padding mean nothing. Throws c10::ValueError for other arguments.
  at::Tensor forward(const at::Tensor& features, const at::Tensor& frame_lengths);
  // See TransformerEncoder::set_seed().
  void set_seed(uint64_t seed) { encoder->set_seed(seed); }

  const SpeechModelOptions& options() const { return options_; }

  FrameInput input{nullptr};
  TransformerEncoder encoder{nullptr};
  torch::nn::Linear output{nullptr};

 private:
  SpeechModelOptions options_;
};
TORCH_MODULE(SpeechModel);

// The number of trainable numbers in a model.
int64_t parameter_count(const torch::nn::Module& model);

// Throws c10::ValueError, which begins with `name`, unless frame_lengths is int64 [batch] on the CPU with values from 1 to
// frames.
void check_frame_lengths(const char* name, const at::Tensor& frame_lengths, int64_t batch, int64_t frames);

}  // namespace experiments
