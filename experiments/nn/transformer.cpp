// Builds layers of attention and feed-forward networks, and the heads of both models.
#include "experiments/nn/transformer.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <utility>

namespace experiments {
namespace {

constexpr int64_t kImageOutputs = 30;  // a logit, a mean and a log-scale for each of 10 mixture components

int64_t feed_forward_width(const TransformerOptions& options) {
  return options.feed_forward > 0 ? options.feed_forward : 4 * options.width;
}

torch::nn::LayerNorm layer_norm(int64_t width) { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})); }

}  // namespace

// ---------------------------------------------------------------- encoder

TransformerEncoderLayerImpl::TransformerEncoderLayerImpl(const TransformerOptions& options) {
  TORCH_CHECK_VALUE(options.feed_forward >= 0, "TransformerEncoder: feed_forward = ", options.feed_forward,
                    ", expected at least 1, or 0 for 4·width");
  TORCH_CHECK_VALUE(options.dropout >= 0 && options.dropout < 1, "TransformerEncoder: dropout = ", options.dropout,
                    ", expected a number from 0 to below 1");
  attention = register_module("attention", MultiHeadAttention(AttentionOptions{options.method, options.width, options.heads,
                                                                               options.head_dim, options.seed}));
  const auto hidden = feed_forward_width(options);
  linear1 = register_module("linear1", torch::nn::Linear(options.width, hidden));
  linear2 = register_module("linear2", torch::nn::Linear(hidden, options.width));
  norm1 = register_module("norm1", layer_norm(options.width));
  norm2 = register_module("norm2", layer_norm(options.width));
  dropout_ = register_module("dropout", torch::nn::Dropout(options.dropout));
}

at::Tensor TransformerEncoderLayerImpl::forward(const at::Tensor& x, const attn::Mask& mask) {
  return after_attention(x, attention(x, mask));
}

at::Tensor TransformerEncoderLayerImpl::after_attention(const at::Tensor& x, const at::Tensor& attended) {
  const auto y = norm1(x + dropout_(attended));
  auto hidden = linear1(y);
  at::relu_(hidden);  // in place, because the backward pass of linear1 does not need its result
  return norm2(y + dropout_(linear2(dropout_(hidden))));
}

TransformerEncoderImpl::TransformerEncoderImpl(TransformerOptions options) : options_(std::move(options)) {
  TORCH_CHECK_VALUE(options_.layers >= 1, "TransformerEncoder: layers = ", options_.layers, ", expected at least 1");
  auto of_layer = options_;
  for (int64_t i = 0; i < options_.layers; ++i) {
    of_layer.seed = layer_seed(options_.seed, i);
    layers.push_back(register_module("layer" + std::to_string(i), TransformerEncoderLayer(of_layer)));
  }
  norm = register_module("norm", layer_norm(options_.width));
}

at::Tensor TransformerEncoderImpl::forward(const at::Tensor& x, const attn::Mask& mask) {
  auto y = x;
  for (auto& layer : layers) y = layer(y, mask);
  return norm(y);
}

void TransformerEncoderImpl::set_seed(uint64_t seed) {
  options_.seed = seed;
  for (size_t i = 0; i < layers.size(); ++i) layers[i]->attention->set_seed(layer_seed(seed, int64_t(i)));
}

// ---------------------------------------------------------------- models

SequenceModelOptions image_model(int64_t layers, const std::string& method, uint64_t seed) {
  return {.tokens = 256,
          .outputs = kImageOutputs,
          .encoder = {.method = method, .layers = layers, .width = 256, .heads = 8, .head_dim = 32, .seed = seed}};
}

SequenceModelImpl::SequenceModelImpl(SequenceModelOptions options) : options_(std::move(options)) {
  mask_.causal = true;
  mask_.pattern = attn::Pattern::parse(options_.pattern);
  TORCH_CHECK_VALUE(options_.outputs >= 1, "SequenceModel: outputs = ", options_.outputs, ", expected at least 1");
  const auto width = options_.encoder.width;
  input = register_module("input", TokenInput(options_.tokens, width));
  encoder = register_module("encoder", TransformerEncoder(options_.encoder));
  output = register_module("output", torch::nn::Linear(width, options_.outputs));
}

at::Tensor SequenceModelImpl::forward(const at::Tensor& tokens) { return output(encoder(input(tokens), mask_)); }

SpeechModelOptions speech_model(int64_t phones, const std::string& method, uint64_t seed) {
  return {.phones = phones, .encoder = {.method = method, .layers = 9, .width = 192, .heads = 6, .head_dim = 32, .seed = seed}};
}

SpeechModelImpl::SpeechModelImpl(SpeechModelOptions options) : options_(std::move(options)) {
  TORCH_CHECK_VALUE(options_.phones >= 1, "SpeechModel: phones = ", options_.phones, ", expected at least 1");
  const auto width = options_.encoder.width;
  input = register_module("input", FrameInput(options_.features, width));
  encoder = register_module("encoder", TransformerEncoder(options_.encoder));
  output = register_module("output", torch::nn::Linear(width, options_.phones + 1));
}

at::Tensor SpeechModelImpl::forward(const at::Tensor& features, const at::Tensor& frame_lengths) {
  const auto x = input(features);
  check_frame_lengths("SpeechModel", frame_lengths, x.size(0), x.size(1));
  attn::Mask mask;
  mask.key_lengths = frame_lengths.to(x.device());
  return at::log_softmax(output(encoder(x, mask)), -1);
}

int64_t parameter_count(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const auto& parameter : model.parameters())
    if (parameter.requires_grad()) count += parameter.numel();
  return count;
}

void check_frame_lengths(const char* name, const at::Tensor& frame_lengths, int64_t batch, int64_t frames) {
  TORCH_CHECK_VALUE(frame_lengths.dim() == 1 && frame_lengths.size(0) == batch && frame_lengths.scalar_type() == at::kLong &&
                        frame_lengths.is_cpu(),
                    name, ": frame_lengths is ", frame_lengths.scalar_type(), " ", frame_lengths.sizes(), " on ",
                    frame_lengths.device(), ", expected int64 [", batch, "] on the CPU");
  if (batch == 0) return;
  const auto [min, max] = frame_lengths.aminmax();
  TORCH_CHECK_VALUE(min.item<int64_t>() >= 1 && max.item<int64_t>() <= frames, name, ": frame_lengths are from ",
                    min.item<int64_t>(), " to ", max.item<int64_t>(), ", expected lengths from 1 to ", frames);
}

}  // namespace experiments
