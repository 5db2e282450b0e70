// Samples each byte from the model's distribution, and gives it to the decoder as the next token.
#include "experiments/decoding/generate.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace experiments {
namespace {

constexpr int64_t kBytes = 256;

void check(const Decoder& decoder, int64_t length, const GenerateOptions& options) {
  const auto& model = decoder.model()->options();
  TORCH_CHECK_VALUE(model.tokens == kBytes && model.outputs % 3 == 0, "generate: the model has ", model.tokens, " tokens and ",
                    model.outputs, " outputs, expected 256 tokens and 3 outputs for each component of a mixture");
  TORCH_CHECK_VALUE(length >= 1 && length <= decoder.options().max_tokens, "generate: length = ", length, ", expected 1 to ",
                    decoder.options().max_tokens, ", the max_tokens of the decoder");
  if (options.given) {
    const auto& given = *options.given;
    TORCH_CHECK_VALUE(given.dim() == 2 && given.scalar_type() == at::kByte && given.is_cpu() &&
                          given.size(0) == decoder.options().batch && given.size(1) >= 1 && given.size(1) <= length + 1,
                      "generate: the given bytes are ", given.scalar_type(), " ", given.sizes(), " on ", given.device(),
                      ", expected uint8 [", decoder.options().batch, ", 1 to ", length + 1, "] on the CPU");
  }
  if (options.first_byte_counts) {
    const auto& counts = *options.first_byte_counts;
    TORCH_CHECK_VALUE(counts.dim() == 1 && counts.size(0) == kBytes && counts.scalar_type() == at::kLong && counts.is_cpu() &&
                          counts.min().item<int64_t>() >= 0 && counts.sum().item<int64_t>() > 0,
                      "generate: first_byte_counts is ", counts.scalar_type(), " ", counts.sizes(), " on ", counts.device(),
                      ", expected int64 [256] on the CPU with counts of at least 0 that are not all 0");
  }
}

// The first bytes of the images, uint8 [batch, P].
at::Tensor first_bytes(int64_t batch, const GenerateOptions& options) {
  if (options.given) return *options.given;
  if (!options.first_byte_counts) return at::zeros({batch, 1}, at::kByte);
  return at::multinomial(options.first_byte_counts->to(at::kDouble), batch, /*replacement=*/true, options.generator)
      .to(at::kByte)
      .unsqueeze(1);
}

}  // namespace

at::Tensor generate(Decoder& decoder, int64_t length, const GenerateOptions& options) {
  check(decoder, length, options);
  const auto batch = decoder.options().batch;
  const auto given = first_bytes(batch, options);
  const auto images = at::empty({batch, length + 1}, at::kByte);
  images.narrow(1, 0, given.size(1)).copy_(given);
  if (given.size(1) > length) return images;

  const auto device = decoder.model()->output->weight.device();
  LogisticMixtureSampler sample(options.sampler, options.generator);
  const auto tokens = at::empty({batch}, at::kLong);
  auto* const bytes = images.mutable_data_ptr<uint8_t>();
  auto* const ids = tokens.mutable_data_ptr<int64_t>();
  decoder.reset();
  // One token given needs no prefill, which for the methods with a state would be computed by modules.
  at::Tensor parameters = given.size(1) > 1 ? decoder.prefill(given.to(at::kLong).to(device)) : at::Tensor();
  for (auto t = given.size(1); t <= length; ++t) {
    if (!parameters.defined() || t > given.size(1)) {
      for (int64_t b = 0; b < batch; ++b) ids[b] = bytes[b * (length + 1) + t - 1];
      parameters = decoder.step(device.is_cpu() ? tokens : tokens.to(device));
    }
    sample(parameters.is_cpu() ? parameters : parameters.cpu(), bytes + t, length + 1);
  }
  return images;
}

at::Tensor first_byte_counts(const at::Tensor& images) {
  TORCH_CHECK_VALUE(images.dim() >= 2 && images.scalar_type() == at::kByte && images.is_cpu() && images.numel() > 0,
                    "first_byte_counts: images are ", images.scalar_type(), " ", images.sizes(), " on ", images.device(),
                    ", expected uint8 [images, ...] on the CPU");
  return at::bincount(images.flatten(1).select(1, 0), {}, kBytes);
}

}  // namespace experiments
