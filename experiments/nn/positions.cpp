// Computes the sines and cosines of positions, and checks the inputs of the models.
#include "experiments/nn/positions.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace experiments {
namespace {

constexpr double kLongestPeriod = 10000;  // divided by 2π

void check_input_sizes(const char* name, const char* inputs, int64_t count, int64_t width) {
  TORCH_CHECK_VALUE(count >= 1, name, ": ", inputs, " = ", count, ", expected at least 1");
  TORCH_CHECK_VALUE(width >= 4 && width % 4 == 0, name, ": width = ", width,
                    ", expected a positive multiple of 4, since half of the features are sines and cosines in pairs");
}

}  // namespace

at::Tensor sinusoidal_positions(int64_t length, int64_t width, const at::TensorOptions& options) {
  TORCH_CHECK_VALUE(length >= 0, "sinusoidal_positions: length = ", length, ", expected at least 0");
  TORCH_CHECK_VALUE(width >= 2 && width % 2 == 0, "sinusoidal_positions: width = ", width,
                    ", expected an even number of at least 2");
  const auto float64 = at::TensorOptions(at::kDouble);
  const auto frequencies = at::exp(at::arange(0, width, 2, float64) * (-std::log(kLongestPeriod) / double(width)));
  const auto angles = at::arange(length, float64).unsqueeze(1) * frequencies;
  return at::stack({angles.sin(), angles.cos()}, -1).flatten(1).to(options);
}

at::Tensor SinusoidalPositions::concatenate_to(const at::Tensor& features, int64_t begin) {
  const auto encodings = rows(begin, features.size(1), features);
  return at::cat({features, encodings.expand({features.size(0), -1, -1})}, -1);
}

at::Tensor SinusoidalPositions::rows(int64_t begin, int64_t length, const at::Tensor& like) {
  const auto end = begin + length;
  if (!table_.defined() || table_.size(0) < end || table_.dtype() != like.dtype() || table_.device() != like.device()) {
    // Twice the old length, so that a decoder that needs one more position each time seldom computes the table.
    const auto longest = table_.defined() && table_.size(0) < end ? std::max(end, 2 * table_.size(0)) : end;
    table_ = sinusoidal_positions(longest, width_, at::TensorOptions(like.dtype()).device(like.device()));
  }
  return table_.narrow(0, begin, length);
}

TokenInputImpl::TokenInputImpl(int64_t tokens, int64_t width) : positions_(width / 2) {
  check_input_sizes("TokenInput", "tokens", tokens, width);
  embedding = register_module("embedding", torch::nn::Embedding(tokens, width / 2));
}

at::Tensor TokenInputImpl::forward(const at::Tensor& tokens, int64_t begin) {
  TORCH_CHECK_VALUE(tokens.dim() == 2 && tokens.scalar_type() == at::kLong, "TokenInput: tokens are ", tokens.scalar_type(), " ",
                    tokens.sizes(), ", expected int64 [batch, length]");
  TORCH_CHECK_VALUE(begin >= 0, "TokenInput: begin = ", begin, ", expected at least 0");
  const auto count = embedding->weight.size(0);
  // On a GPU this check would wait for the device, and the embedding makes it there.
  if (tokens.is_cpu() && tokens.numel() > 0) {
    const auto [min, max] = tokens.aminmax();
    TORCH_CHECK_VALUE(min.item<int64_t>() >= 0 && max.item<int64_t>() < count, "TokenInput: tokens from ", min.item<int64_t>(),
                      " to ", max.item<int64_t>(), ", expected tokens from 0 to ", count - 1);
  }
  return positions_.concatenate_to(embedding(tokens), begin);
}

FrameInputImpl::FrameInputImpl(int64_t features, int64_t width) : positions_(width / 2) {
  check_input_sizes("FrameInput", "features", features, width);
  projection = register_module("projection", torch::nn::Linear(features, width / 2));
}

at::Tensor FrameInputImpl::forward(const at::Tensor& frames) {
  const auto features = projection->options.in_features();
  TORCH_CHECK_VALUE(frames.dim() == 3 && frames.size(2) == features, "FrameInput: frames have shape ", frames.sizes(),
                    ", expected [batch, length, ", features, "]");
  return positions_.concatenate_to(projection(frames));
}

}  // namespace experiments
