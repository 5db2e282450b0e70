// Generates images byte after byte with a Decoder.
//
//   const auto decoder = make_decoder(model, {.batch = 64, .max_tokens = 783});
//   const auto images = generate(*decoder, 783, {.generator = generator});  // uint8 [64, 784]
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "experiments/decoding/decoder.h"
#include "experiments/losses/logistic_mixture.h"

namespace experiments {

struct GenerateOptions {
  LogisticSampler sampler = LogisticSampler::as_likelihood;
  // A generator of the CPU, which draws everything; PyTorch's default one if absent.
  std::optional<at::Generator> generator = std::nullopt;
  // The given first bytes of each image, uint8 [batch, P] on the CPU with 1 ≤ P ≤ T + 1, which the model completes. Without it,
  // whole images are generated.
  std::optional<at::Tensor> given = std::nullopt;
  // How often each of the 256 values is the first byte of a training image, int64 [256] on the CPU. The model predicts byte t + 1
  // from the bytes 0 … t, so it has no distribution of byte 0; without `given`, byte 0 is drawn from these counts, and it is 0 if
  // they are absent.
  std::optional<at::Tensor> first_byte_counts = std::nullopt;
};

// Begins new sequences in the decoder and returns images of T + 1 bytes, uint8 [batch, T+1] on the CPU, where batch is the
// decoder's. Throws c10::ValueError for arguments that are not as described above, if T is below 1 or above the decoder's
// max_tokens, and if the model's outputs are not those of a mixture of logistics over 256 tokens.
at::Tensor generate(Decoder& decoder, int64_t length, const GenerateOptions& options = {});

// How often each value is the first byte of the images, uint8 [images, ...] on the CPU → int64 [256].
at::Tensor first_byte_counts(const at::Tensor& images);

}  // namespace experiments
