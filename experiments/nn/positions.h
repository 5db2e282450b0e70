// Sinusoidal position encodings, and the input layers of the models, which concatenate them with learned features.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

namespace experiments {

// The encodings of the positions 0 … length-1, [length, width] with the dtype and device of `options`. Entries 2i and 2i+1 of
// position p are sin and cos of p / 10000^(2i/width) ("Attention Is All You Need", 1706.03762, section 3.5). They are computed in
// float64 and then rounded. Throws c10::ValueError unless length ≥ 0 and width is even and at least 2.
at::Tensor sinusoidal_positions(int64_t length, int64_t width, const at::TensorOptions& options);

// Concatenates features with position encodings, which are computed once for the longest sequence so far. They are neither
// parameters nor buffers, so checkpoints do not hold them.
class SinusoidalPositions {
 public:
  explicit SinusoidalPositions(int64_t width) : width_(width) {}
  // features [B,N,w] at the positions begin … begin+N-1 → [B,N,w+width].
  at::Tensor concatenate_to(const at::Tensor& features, int64_t begin = 0);

 private:
  // The encodings of these positions, [length, width], in the dtype and on the device of `like`.
  at::Tensor rows(int64_t begin, int64_t length, const at::Tensor& like);

  int64_t width_;
  at::Tensor table_;  // [longest length so far, width]
};

// Tokens int64 [B,N], each from 0 to tokens-1 → [B,N,width]: the first half of the features is a learned embedding of the token,
// the second half is the encoding of its position.
class TokenInputImpl : public torch::nn::Module {
 public:
  // Throws c10::ValueError unless tokens ≥ 1 and width is a positive multiple of 4.
  TokenInputImpl(int64_t tokens, int64_t width);
  // The tokens' positions are begin … begin+N-1; a decoder gives the number of the tokens before as `begin`. Throws
  // c10::ValueError for another shape or dtype and, on the CPU, for tokens out of range.
  at::Tensor forward(const at::Tensor& tokens, int64_t begin = 0);

  torch::nn::Embedding embedding{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(int64_t(0))})

 private:
  SinusoidalPositions positions_;
};
TORCH_MODULE(TokenInput);

// Feature vectors [B,N,features] → [B,N,width]: the first half is a learned linear map of the vector, the second half is the
// encoding of its position. The paper does not say how frames enter the model; this is TokenInput with a linear map in the place
// of the embedding.
class FrameInputImpl : public torch::nn::Module {
 public:
  // Throws c10::ValueError unless features ≥ 1 and width is a positive multiple of 4.
  FrameInputImpl(int64_t features, int64_t width);
  // Throws c10::ValueError for another shape.
  at::Tensor forward(const at::Tensor& frames);

  torch::nn::Linear projection{nullptr};

 private:
  SinusoidalPositions positions_;
};
TORCH_MODULE(FrameInput);

}  // namespace experiments
