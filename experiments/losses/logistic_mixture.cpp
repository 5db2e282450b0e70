// Computes the likelihood in a form that does not cancel, and draws bytes from the mixture.
#include "experiments/losses/logistic_mixture.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/DistributionsHelper.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
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
                                   const std::optional<at::Generator>& generator) {
  const at::NoGradGuard no_grad;
  const auto mixture = split("sample_logistic_mixture", parameters.to(at::kDouble));
  const auto components = mixture.means.size(-1);
  const std::vector<int64_t> shape = parameters.sizes().slice(0, size_t(parameters.dim() - 1)).vec();
  const auto weights = at::softmax(mixture.logits, -1).reshape({-1, components});
  const auto chosen = at::multinomial(weights, 1, /*replacement=*/true, generator);
  const auto chosen_component = [&](const at::Tensor& all) {
    return all.reshape({-1, components}).gather(1, chosen).view(shape);
  };
  const auto means = chosen_component(mixture.means), log_scales = chosen_component(mixture.log_scales);
  const auto scales =
      sampler == LogisticSampler::as_paper ? at::elu(log_scales) + kAuthorsScaleOffset : log_scales.clamp_min(kMinLogScale).exp();
  // rand() may be 0 but never 1. The smallest positive number in its place keeps infinity out of the product below.
  const auto u = at::rand(shape, generator, means.options()).clamp_min_(std::numeric_limits<double>::min());
  const auto x = means + scales * at::logit(u);
  return ((x + 1) / kBin).round_().clamp_(0, 255).to(at::kLong);
}

template <class T>
uint8_t logistic_mixture_byte(const T* parameters, int64_t stride, int64_t components, LogisticSampler sampler, double choice,
                              double u) {
  const auto parameter = [&](int64_t part, int64_t k) { return double(parameters[(part * components + k) * stride]); };
  double largest = parameter(0, 0), total = 0;
  for (int64_t k = 1; k < components; ++k) largest = std::max(largest, parameter(0, k));
  for (int64_t k = 0; k < components; ++k) total += std::exp(parameter(0, k) - largest);
  // The last component is chosen where rounding leaves the cumulative weight below `choice`.
  int64_t chosen = 0;
  double rest = choice * total - std::exp(parameter(0, 0) - largest);
  while (rest >= 0 && chosen + 1 < components) rest -= std::exp(parameter(0, ++chosen) - largest);

  const double mean = parameter(1, chosen), log_scale = parameter(2, chosen);
  const double scale = sampler == LogisticSampler::as_paper
                           ? (log_scale > 0 ? log_scale : std::expm1(log_scale)) + kAuthorsScaleOffset
                           : std::exp(std::max(log_scale, kMinLogScale));
  const double positive = std::max(u, std::numeric_limits<double>::min());
  const double x = mean + scale * std::log(positive / (1 - positive));
  TORCH_CHECK_VALUE(!std::isnan(x), "logistic_mixture_byte: a distribution has the mean ", mean, ", the log-scale ", log_scale,
                    " and weights whose sum is ", total, ", expected numbers");
  // nearbyint() rounds halves to even, as at::round() does.
  return uint8_t(std::clamp(std::nearbyint((x + 1) / kBin), 0.0, 255.0));
}

template uint8_t logistic_mixture_byte(const float*, int64_t, int64_t, LogisticSampler, double, double);
template uint8_t logistic_mixture_byte(const double*, int64_t, int64_t, LogisticSampler, double, double);

LogisticMixtureSampler::LogisticMixtureSampler(LogisticSampler sampler, std::optional<at::Generator> generator)
    : sampler_(sampler), generator_(generator ? *generator : at::detail::getDefaultCPUGenerator()) {
  TORCH_CHECK_VALUE(generator_.device().is_cpu(), "LogisticMixtureSampler: the generator is on ", generator_.device(),
                    ", expected one of the CPU");
}

void LogisticMixtureSampler::operator()(const at::Tensor& parameters, uint8_t* bytes, int64_t stride) {
  const auto type = parameters.scalar_type();
  TORCH_CHECK_VALUE((type == at::kFloat || type == at::kDouble) && parameters.is_cpu(), "LogisticMixtureSampler: parameters are ",
                    type, " on ", parameters.device(), ", expected float32 or float64 on the CPU");
  TORCH_CHECK_VALUE(parameters.dim() == 2 && parameters.size(1) >= 3 && parameters.size(1) % 3 == 0,
                    "LogisticMixtureSampler: parameters have shape ", parameters.sizes(),
                    ", expected [B, 3K] with K ≥ 1 components");
  auto& generator = *at::check_generator<at::CPUGeneratorImpl>(generator_);
  const std::lock_guard<std::mutex> lock(generator.mutex_);
  at::uniform_real_distribution<double> uniform(0, 1);
  const auto draw = [&](const auto* numbers) {
    for (int64_t b = 0; b < parameters.size(0); ++b) {
      const double choice = uniform(&generator), u = uniform(&generator);
      bytes[b * stride] = logistic_mixture_byte(numbers + b * parameters.stride(0), parameters.stride(1), parameters.size(1) / 3,
                                                sampler_, choice, u);
    }
  };
  if (type == at::kFloat) draw(parameters.const_data_ptr<float>());
  else draw(parameters.const_data_ptr<double>());
}

}  // namespace experiments
