// Tests of the logistic mixture. tests/python/experiments/test_experiments.py compares it with SciPy.
#include "experiments/losses/logistic_mixture.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/experiments/generator.h"
#include "tests/support/errors_of.h"

namespace experiments {
namespace {

using attnbench::message_of;
using attnbench::seeded;

// Random parameters [count,30] whose components are at most wide enough that no byte within reach falls below 1e-5.
at::Tensor random_parameters(int64_t count, at::ScalarType dtype, double min_log_scale, double max_log_scale) {
  const auto parts = at::rand({3, count, 10}, seeded(7), at::TensorOptions(at::kDouble));
  const auto log_scales = parts[2] * (max_log_scale - min_log_scale) + min_log_scale;
  return at::cat({parts[0] * 4 - 2, parts[1] * 2 - 1, log_scales}, -1).to(dtype);
}

// ln p of every byte under every distribution of parameters [count,3K]: [count,256].
at::Tensor of_every_byte(const at::Tensor& parameters) {
  const auto count = parameters.size(0);
  const auto bytes = at::arange(256, at::kLong).expand({count, 256});
  return logistic_mixture_log_likelihood(parameters.unsqueeze(1).expand({count, 256, parameters.size(1)}), bytes);
}

// ln p by the definition in float64, with the differences as they are written.
double by_definition(const at::Tensor& parameters, int64_t byte) {
  const auto p = parameters.to(at::kDouble);
  const auto sigma = [](double x) { return 1 / (1 + std::exp(-x)); };
  const int64_t count = p.size(0) / 3;
  const double y = double(byte) / 127.5 - 1, h = 1.0 / 255;
  double total = 0, probability = 0;
  for (int64_t k = 0; k < count; ++k) total += std::exp(p[k].item<double>());
  for (int64_t k = 0; k < count; ++k) {
    const double mean = p[count + k].item<double>(), s = std::exp(std::max(p[2 * count + k].item<double>(), -7.0));
    const double below = sigma((y + h - mean) / s), above = sigma((y - h - mean) / s), z = (y - mean) / s;
    double part = below - above;
    if (part <= 1e-5) part = std::exp(-z) / std::pow(1 + std::exp(-z), 2) / s / 127.5;
    if (byte == 0) part = below;
    if (byte == 255) part = 1 - above;
    probability += std::exp(p[k].item<double>()) / total * part;
  }
  return std::log(probability);
}

TEST(LogisticMixture, ProbabilitiesOfAllBytesSumToOne) {
  // Scales from e⁻³ to e: every byte near the means has more than 1e-5.
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto sums = of_every_byte(random_parameters(50, dtype, -2, 1)).exp().sum(-1);
    EXPECT_TRUE(at::allclose(sums, at::ones_like(sums), 0, 1e-5)) << dtype;
  }
}

TEST(LogisticMixture, AgreesWithTheDefinition) {
  for (const auto& parameters : {random_parameters(4, at::kDouble, -4, 1), random_parameters(4, at::kDouble, 1, 7)}) {
    const auto computed = of_every_byte(parameters);
    for (int64_t i = 0; i < parameters.size(0); ++i)
      for (int64_t byte = 0; byte < 256; ++byte)
        EXPECT_NEAR(computed[i][byte].item<double>(), by_definition(parameters[i], byte), 1e-7) << i << " " << byte;
  }
}

TEST(LogisticMixture, IsAccurateInFloat32) {
  // Scales up to e⁵: a difference of two float32 values of σ would have an error of 0.2 % and more there.
  for (const auto& [low, high] : {std::pair{-3.0, 2.0}, std::pair{2.0, 5.0}}) {
    const auto parameters = random_parameters(50, at::kFloat, low, high);
    const auto float64 = of_every_byte(parameters.to(at::kDouble));
    EXPECT_TRUE(at::allclose(of_every_byte(parameters).to(at::kDouble), float64, 0, 1e-4)) << low;
  }
}

TEST(LogisticMixture, ReadsLogitsThenMeansThenLogScales) {
  // The second of two components has all the weight; its mean is byte 200 and it is narrow.
  const double y = 200 / 127.5 - 1;
  const auto parameters = at::tensor({-100.0, 100.0, -1.0, y, 0.0, -7.0}, at::kDouble);
  EXPECT_GT(logistic_mixture_log_likelihood(parameters, at::scalar_tensor(200, at::kLong)).item<double>(), -0.1);
  EXPECT_LT(logistic_mixture_log_likelihood(parameters, at::scalar_tensor(0, at::kLong)).item<double>(), -100);
}

TEST(LogisticMixture, GradientsAgreeWithFiniteDifferences) {
  const auto parameters = random_parameters(6, at::kDouble, -3, 2);
  const auto bytes = at::tensor({0, 255, 128, 1, 254, 90}, at::kLong);
  const auto variable = parameters.clone().requires_grad_();
  logistic_mixture_log_likelihood(variable, bytes).sum().backward();
  const double step = 1e-6;
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t j = 0; j < 30; ++j) {
      auto up = parameters.clone(), down = parameters.clone();
      up[i][j] += step;
      down[i][j] -= step;
      const auto difference =
          logistic_mixture_log_likelihood(up, bytes).sum() - logistic_mixture_log_likelihood(down, bytes).sum();
      EXPECT_NEAR(variable.grad()[i][j].item<double>(), difference.item<double>() / (2 * step), 1e-7) << i << " " << j;
    }
}

TEST(LogisticMixture, IsFiniteForExtremeParameters) {
  for (const double log_scale : {-1000.0, -50.0, -7.0, 0.0, 50.0, 100.0, 1000.0})
    for (const double mean : {-1e4, -1.0, 0.0, 1.0, 1e4})
      for (const double logit : {-1e4, 0.0, 1e4}) {
        // One extreme component beside an ordinary one, and all of them extreme.
        for (const bool all : {false, true}) {
          const auto extreme = at::tensor({logit, mean, log_scale}, at::kFloat).view({3, 1});
          const auto other = all ? extreme : at::zeros({3, 1});
          const auto parameters = at::cat({extreme, other}, 1).reshape({1, 6}).repeat({256, 1}).requires_grad_();
          const auto result = logistic_mixture_log_likelihood(parameters, at::arange(256, at::kByte));
          result.sum().backward();
          EXPECT_TRUE(result.isfinite().all().item<bool>()) << log_scale << " " << mean << " " << logit << " " << all;
          EXPECT_TRUE(parameters.grad().isfinite().all().item<bool>()) << log_scale << " " << mean << " " << logit << " " << all;
        }
      }
}

TEST(LogisticMixture, BitsPerDimensionOfUniformBytesAreEight) {
  EXPECT_NEAR(bits_per_dimension(at::full({3, 5}, -std::log(256.0), at::kDouble)).item<double>(), 8, 1e-12);
  EXPECT_NEAR(bits_per_dimension(at::tensor({-std::log(2.0), -std::log(8.0)}, at::kDouble)).item<double>(), 2, 1e-12);
}

TEST(LogisticMixture, SamplesAreBytesInTheShapeOfTheParameters) {
  const auto parameters = random_parameters(12, at::kFloat, -7, 60).view({3, 4, 30});
  for (const auto sampler : {LogisticSampler::as_likelihood, LogisticSampler::as_paper}) {
    const auto bytes = sample_logistic_mixture(parameters, sampler, seeded(1));
    ASSERT_EQ(bytes.sizes(), (at::IntArrayRef{3, 4}));
    EXPECT_EQ(bytes.scalar_type(), at::kLong);
    EXPECT_TRUE(bytes.ge(0).logical_and(bytes.le(255)).all().item<bool>());
    EXPECT_TRUE(at::equal(bytes, sample_logistic_mixture(parameters, sampler, seeded(1)))) << "a seed gives one result";
    EXPECT_FALSE(at::equal(bytes, sample_logistic_mixture(parameters, sampler, seeded(2))));
  }
}

TEST(LogisticMixture, SamplesOfNarrowDistributionsAreTheirMeans) {
  const auto means = at::arange(256, at::kDouble) / 127.5 - 1;
  const auto parameters = at::stack({at::zeros({256}, at::kDouble), means, at::full({256}, -50.0, at::kDouble)}, -1);
  const auto bytes = sample_logistic_mixture(parameters, LogisticSampler::as_likelihood, seeded(3));
  EXPECT_LE((bytes - at::arange(256, at::kLong)).abs().max().item<int64_t>(), 2);
}

TEST(LogisticMixture, BytesFollowFromTheirRandomNumbers) {
  for (const auto sampler : {LogisticSampler::as_likelihood, LogisticSampler::as_paper})
    for (const double log_scale : {-9.0, -1.5, 0.0, 0.7})
      for (const double u : {0.0, 0.1, 0.5, 0.93, 1 - 1e-16}) {
        const float parameters[] = {3, 0.25f, float(log_scale)};
        const double scale = sampler == LogisticSampler::as_likelihood
                                 ? std::exp(std::max(log_scale, -7.0))
                                 : (log_scale > 0 ? log_scale : std::exp(log_scale) - 1) + 1.0001;
        const double x = 0.25 + scale * std::log(std::max(u, std::numeric_limits<double>::min()) / (1 - u));
        const double expected = std::min(255.0, std::max(0.0, std::round((x + 1) / 2 * 255)));
        EXPECT_NEAR(logistic_mixture_byte(parameters, 1, 1, sampler, 0.4, u), expected, 1e-9) << log_scale << " " << u;
      }
}

TEST(LogisticMixture, TheComponentIsTheFirstWhoseCumulativeWeightExceedsTheChoice) {
  // Weights 1/8, 5/8, 2/8 and narrow components at the bytes 10, 100 and 200. Neighbouring numbers belong to other distributions.
  const auto parameters = at::zeros({9, 2}, at::kDouble);
  const double values[] = {
      std::log(1.0), std::log(5.0), std::log(2.0), 10 / 127.5 - 1, 100 / 127.5 - 1, 200 / 127.5 - 1, -50, -50, -50};
  for (int64_t i = 0; i < 9; ++i) parameters[i][0] = values[i];
  const auto byte = [&](double choice) {
    return int(logistic_mixture_byte(parameters.const_data_ptr<double>(), 2, 3, LogisticSampler::as_likelihood, choice, 0.5));
  };
  EXPECT_EQ(byte(0), 10);
  EXPECT_EQ(byte(0.1249), 10);
  EXPECT_EQ(byte(0.1251), 100);
  EXPECT_EQ(byte(0.7499), 100);
  EXPECT_EQ(byte(0.7501), 200);
  EXPECT_EQ(byte(1 - 1e-16), 200);
}

TEST(LogisticMixture, TheFastSamplerDrawsFromTheDistributionOfSampleLogisticMixture) {
  constexpr int64_t kDraws = 100'000;
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto parameters = random_parameters(3, dtype, -4, -1).slice(0, 0, 3, 2);
    std::vector<uint8_t> bytes(size_t(kDraws) * 2);
    const auto repeated = parameters.repeat_interleave(kDraws, 0);
    LogisticMixtureSampler(LogisticSampler::as_likelihood, seeded(4))(repeated, bytes.data());
    const auto drawn = at::from_blob(bytes.data(), {2, kDraws}, at::kByte);
    for (int64_t i = 0; i < 2; ++i) {
      const auto counts = at::bincount(drawn[i], {}, 256).to(at::kDouble);
      // The sampler rounds x to the nearest byte, so a byte has the probability of the interval of half a step on either side,
      // which is that of the likelihood up to the different step 1/127.5 of y.
      const auto other = sample_logistic_mixture(parameters[i].expand({kDraws, 30}), LogisticSampler::as_likelihood, seeded(5));
      const auto expected = at::bincount(other, {}, 256).to(at::kDouble);
      // Two counts with the same mean m differ with the variance 2m.
      const auto deviations = (counts - expected).abs() / (counts + expected + 1).sqrt();
      EXPECT_LE(deviations.max().item<double>(), 5) << dtype << " " << i;
    }
  }
}

TEST(LogisticMixture, TheFastSamplerStoresWithAStrideAndFollowsItsGenerator) {
  const auto parameters = random_parameters(5, at::kFloat, -4, -1);
  std::vector<uint8_t> bytes(15, 77), dense(5), others(5);
  LogisticMixtureSampler(LogisticSampler::as_paper, seeded(4))(parameters, bytes.data(), 3);
  LogisticMixtureSampler(LogisticSampler::as_paper, seeded(4))(parameters, dense.data());
  LogisticMixtureSampler(LogisticSampler::as_paper, seeded(6))(parameters, others.data());
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(bytes[3 * i], dense[i]);
    EXPECT_EQ(bytes[3 * i + 1], 77);
  }
  EXPECT_NE(dense, others);
}

TEST(LogisticMixture, TheFastSamplerRefusesBadArguments) {
  uint8_t byte = 0;
  LogisticMixtureSampler sample(LogisticSampler::as_paper);
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { sample(at::zeros({2, 4}), &byte); }), "[2, 4], expected [B, 3K]");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { sample(at::zeros({1, 3}, at::kLong), &byte); }), "parameters are Long");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { sample(at::full({1, 3}, NAN), &byte); }), "expected numbers");
}

TEST(LogisticMixture, NamesOfSamplersAreParsed) {
  EXPECT_EQ(parse_logistic_sampler("as-likelihood"), LogisticSampler::as_likelihood);
  EXPECT_EQ(parse_logistic_sampler("as-paper"), LogisticSampler::as_paper);
  EXPECT_EQ(logistic_sampler_name(LogisticSampler::as_likelihood), "as-likelihood");
  EXPECT_EQ(logistic_sampler_name(LogisticSampler::as_paper), "as-paper");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { parse_logistic_sampler("paper"); }), "expected as-likelihood or as-paper");
}

TEST(LogisticMixture, RefusesBadArguments) {
  const auto message = [](const at::Tensor& parameters, const at::Tensor& bytes) {
    return message_of<c10::ValueError>([&] { logistic_mixture_log_likelihood(parameters, bytes); });
  };
  const auto bytes = at::zeros({2}, at::kLong), parameters = at::zeros({2, 30});
  EXPECT_CONTAINS(message(at::zeros({2, 31}), bytes), "[2, 31], expected [..., 3K]");
  EXPECT_CONTAINS(message(at::zeros({2, 30}, at::kHalf), bytes), "parameters are Half");
  EXPECT_CONTAINS(message(parameters, at::zeros({3}, at::kLong)), "bytes have shape [3] but parameters have shape [2, 30]");
  EXPECT_CONTAINS(message(parameters, at::zeros({2})), "bytes are Float, expected uint8 or int64");
  EXPECT_CONTAINS(message(parameters, at::tensor({0, 256}, at::kLong)), "bytes from 0 to 256");
  EXPECT_CONTAINS(message(parameters, at::tensor({-1, 5}, at::kLong)), "bytes from -1 to 5");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] {
                    sample_logistic_mixture(at::zeros({2, 4}), LogisticSampler::as_paper);
                  }),
                  "[2, 4]");
}

}  // namespace
}  // namespace experiments
