// The mixture of discretised logistic distributions over the 256 values of a byte (PixelCNN++, 1701.05517, section 2.1, as the
// authors of "Transformers are RNNs" released it): likelihood and sampling.
//
// A distribution with K components has 3K parameters, in this order: K logits of the weights π, K means μ, K log-scales l. The
// paper uses K = 10. Byte b stands for y = b/127.5 − 1 in [−1, 1].
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace experiments {

// ln p(byte) for parameters [...,3K], float32 or float64, and bytes [...], uint8 or int64 from 0 to 255 → [...] in the dtype of
// the parameters. With s = exp(max(l, −7)), h = 1/255 and the logistic function σ, p = Σ_k π_k p_k, where p_k is
//   σ((y+h−μ)/s)                    for byte 0
//   1 − σ((y−h−μ)/s)                for byte 255
//   σ((y+h−μ)/s) − σ((y−h−μ)/s)     for other bytes, if this is more than 1e-5
//   density of the logistic distribution at y, divided by 127.5, otherwise.
// All logarithms are computed without leaving the logarithmic scale, so results and gradients are finite for all finite
// parameters whose (y − μ)/s is finite. Differentiable in the parameters; l below −7 has no gradient. Throws c10::ValueError for
// other shapes and dtypes and, on the CPU, for bytes out of range.
at::Tensor logistic_mixture_log_likelihood(const at::Tensor& parameters, const at::Tensor& bytes);

// The mean of −log₂ p over all bytes, a scalar, from ln p of any shape.
at::Tensor bits_per_dimension(const at::Tensor& log_likelihood);

// How a sample is scaled: x = μ + scale·ln(u/(1−u)).
enum class LogisticSampler {
  as_likelihood,  // scale = exp(max(l, −7)), so that bytes are drawn with the probabilities of the likelihood
  as_paper        // scale = elu(l) + 1.0001, as in the authors' code. For l > 0 this is l + 1.0001, below exp(l).
};

// "as-likelihood" and "as-paper". The parser throws c10::ValueError for anything else and lists the two.
LogisticSampler parse_logistic_sampler(const std::string& name);
std::string logistic_sampler_name(LogisticSampler sampler);

// Draws a byte from each distribution: parameters [...,3K] → int64 [...] on their device. A component k is drawn from π and u
// from the uniform distribution on (0, 1); the byte is (x + 1)/2·255, rounded and clamped to 0…255. Computed in float64, without
// gradients. `generator` is one of the parameters' device, or absent for PyTorch's default one. Throws c10::ValueError for other
// shapes and dtypes.
at::Tensor sample_logistic_mixture(const at::Tensor& parameters, LogisticSampler sampler,
                                   const std::optional<at::Generator>& generator = std::nullopt);

// Draws as sample_logistic_mixture() does, but on the CPU, in one loop without tensor operations, and from other random numbers:
// for the generation of images, where a byte of a single image must cost little beside the model.
class LogisticMixtureSampler {
 public:
  // `generator` is one of the CPU, or absent for PyTorch's default one. Throws c10::ValueError for one of another device.
  explicit LogisticMixtureSampler(LogisticSampler sampler, std::optional<at::Generator> generator = std::nullopt);
  // Draws a byte from each of the B distributions, parameters [B,3K], and stores that of distribution b at bytes[b · stride].
  // Throws c10::ValueError for other shapes and dtypes, and for parameters on another device.
  void operator()(const at::Tensor& parameters, uint8_t* bytes, int64_t stride = 1);

 private:
  LogisticSampler sampler_;
  at::Generator generator_;
};

// The byte that one distribution gives for two numbers from [0, 1): the component k is the first one whose cumulative weight
// π_0 + … + π_k exceeds `choice`, and `u` is the u of LogisticSampler. `stride` is the distance between the 3K parameters.
// Parameter type float or double. Throws c10::ValueError if the chosen component's parameters are not numbers.
template <class T>
uint8_t logistic_mixture_byte(const T* parameters, int64_t stride, int64_t components, LogisticSampler sampler, double choice,
                              double u);

}  // namespace experiments
