#include "experiments/losses/logistic_mixture.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>
#include <utility>

namespace experiments {
namespace {

constexpr double kMinLogScale = -7;
constexpr double kHalfBin = 1.0 / 255;          // h
constexpr double kBin = 2 * kHalfBin;           // the distance between neighbouring values of y
constexpr double kSmallestDifference = 1e-5;    // of values of σ, below which the density takes its place
constexpr double kAuthorsScaleOffset = 1.0001;  // of the authors' sampler
constexpr double kSmallestWidth = 1e-30;        // positive in float32, and so is its square root's logarithm finite

struct Mixture {
  at::Tensor logits, means, log_scales;  // [...,K] each
};

Mixture split(const char* function, const at::Tensor& parameters) {
  TORCH_CHECK_VALUE(parameters.scalar_type() == at::kFloat || parameters.scalar_type() == at::kDouble, function,
                    ": parameters are ", parameters.scalar_type(), ", expected float32 or float64");
  TORCH_CHECK_VALUE(parameters.dim() >= 1 && parameters.size(-1) >= 3 && parameters.size(-1) % 3 == 0, function,
                    ": parameters have shape ", parameters.sizes(), ", expected [..., 3K] with K ≥ 1 components");
  const auto parts = parameters.chunk(3, -1);
  return {parts[0], parts[1], parts[2]};
}

void check_bytes(const at::Tensor& bytes, const at::Tensor& parameters) {
  TORCH_CHECK_VALUE(bytes.sizes() == parameters.sizes().slice(0, size_t(parameters.dim() - 1)),
                    "logistic_mixture_log_likelihood: bytes have shape ", bytes.sizes(), " but parameters have shape ",
                    parameters.sizes(), ", expected the same shape but for the last dimension");
  TORCH_CHECK_VALUE(bytes.scalar_type() == at::kByte || bytes.scalar_type() == at::kLong,
                    "logistic_mixture_log_likelihood: bytes are ", bytes.scalar_type(), ", expected uint8 or int64");
  // On a GPU this check would wait for the device.
  if (bytes.scalar_type() == at::kByte || !bytes.is_cpu() || bytes.numel() == 0) return;
  const auto [min, max] = bytes.aminmax();
  TORCH_CHECK_VALUE(min.item<int64_t>() >= 0 && max.item<int64_t>() <= 255, "logistic_mixture_log_likelihood: bytes from ",
                    min.item<int64_t>(), " to ", max.item<int64_t>(), ", expected values from 0 to 255");
}

}  // namespace

at::Tensor logistic_mixture_log_likelihood(const at::Tensor& parameters, const at::Tensor& bytes) {
  const auto mixture = split("logistic_mixture_log_likelihood", parameters);
  check_bytes(bytes, parameters);
  const auto byte = bytes.unsqueeze(-1);
  const auto y = byte.to(parameters.scalar_type()).mul_(kBin).sub_(1);
  const auto log_scales = mixture.log_scales.clamp_min(kMinLogScale);
  const auto inverse_scales = log_scales.neg().exp();
  const auto centred = y - mixture.means;

  // The logarithms of σ((y+h−μ)/s) and of 1 − σ((y−h−μ)/s) = σ(−(y−h−μ)/s).
  const auto log_below = at::log_sigmoid((centred + kHalfBin) * inverse_scales);
  const auto log_above = at::log_sigmoid((kHalfBin - centred) * inverse_scales);
  // σ(a) − σ(b) = σ(a) σ(−b) (1 − e^(b−a)), where a − b = 2h/s. Unlike the difference itself, no factor cancels. 2h/s may be zero
  // in float32, where the density takes the place of the difference; its logarithm must be finite there, because its gradient is
  // multiplied by zero.
  const auto widths = (inverse_scales * kBin).clamp_min(kSmallestWidth);
  const auto log_difference = log_below + log_above + at::log(-at::expm1(-widths));
  // The logistic density is σ(z) σ(−z)/s at z = (y−μ)/s.
  const auto z = centred * inverse_scales;
  const auto log_density = at::log_sigmoid(z) + at::log_sigmoid(-z) - log_scales + std::log(kBin);

  const auto interior = at::where(log_difference > std::log(kSmallestDifference), log_difference, log_density);
  const auto log_component = at::where(byte == 0, log_below, at::where(byte == 255, log_above, interior));
  return at::logsumexp(at::log_softmax(mixture.logits, -1) + log_component, -1);
}

at::Tensor bits_per_dimension(const at::Tensor& log_likelihood) { return log_likelihood.mean() * (-1 / std::log(2.0)); }

LogisticSampler parse_logistic_sampler(const std::string& name) {
  for (const auto sampler : {LogisticSampler::as_likelihood, LogisticSampler::as_paper})
    if (name == logistic_sampler_name(sampler)) return sampler;
  TORCH_CHECK_VALUE(false, "unknown sampler '", name, "', expected as-likelihood or as-paper");
}

std::string logistic_sampler_name(LogisticSampler sampler) {
  return sampler == LogisticSampler::as_paper ? "as-paper" : "as-likelihood";
}

at::Tensor sample_logistic_mixture(const at::Tensor& parameters, LogisticSampler sampler,
                                   std::optional<at::Generator> generator) {
  const at::NoGradGuard no_grad;
  const auto mixture = split("sample_logistic_mixture", parameters.to(at::kDouble));
  const auto components = mixture.means.size(-1);
  const std::vector<int64_t> shape = parameters.sizes().slice(0, size_t(parameters.dim() - 1)).vec();
  const auto weights = at::softmax(mixture.logits, -1).reshape({-1, components});
  const auto chosen = at::multinomial(weights, 1, /*replacement=*/true, generator);
  const auto of_chosen = [&](const at::Tensor& all) { return all.reshape({-1, components}).gather(1, chosen).view(shape); };
  const auto means = of_chosen(mixture.means), log_scales = of_chosen(mixture.log_scales);
  const auto scales =
      sampler == LogisticSampler::as_paper ? at::elu(log_scales) + kAuthorsScaleOffset : log_scales.clamp_min(kMinLogScale).exp();
  // rand() may be 0 but never 1. The smallest positive number in its place keeps infinity out of the product below.
  const auto u = at::rand(shape, generator, means.options()).clamp_min_(std::numeric_limits<double>::min());
  const auto x = means + scales * at::logit(u);
  return ((x + 1) / kBin).round_().clamp_(0, 255).to(at::kLong);
}

}  // namespace experiments
