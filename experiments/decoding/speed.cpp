// Times the steps, the kernels and the memory of this machine in turns.
#include "experiments/decoding/speed.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "experiments/decoding/decoder.h"
#include "experiments/losses/logistic_mixture.h"
#include "harness/statistics/statistics.h"
#include "harness/worker/cpu/ceilings.h"
#include "harness/worker/cpu/fixed_work.h"
#include "harness/worker/cpu/threads.h"

namespace experiments {
namespace {

using attnbench::Json;

constexpr int kWarmupSteps = 3;

template <class Work>
double seconds_of(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double quantile(std::vector<double> samples, double probability) {
  std::sort(samples.begin(), samples.end());
  return attnbench::quantile(samples, probability);
}

// How fast `threads` threads read an array of this size over and over.
double cached_read_gb_s(int64_t bytes, int64_t threads) {
  static std::atomic<uint64_t> sink;  // stores the result, so that the compiler cannot drop the work
  const auto count = bytes / 8 / threads;
  const std::vector<uint64_t> numbers(size_t(count * threads), 1);
  std::vector<double> seconds;
  for (int run = 0; run < 50; ++run)
    seconds.push_back(seconds_of([&] {
      at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
        for (auto thread = begin; thread < end; ++thread) sink += attnbench::read_sum(numbers.data() + thread * count, count);
      });
    }));
  return double(count * threads * 8) / attnbench::median(seconds) / 1e9;
}

// The multiply-adds of one sequence's token in products with weights.
double multiply_adds(const SequenceModel& model) {
  double count = 0;
  for (const auto& parameter : model->named_parameters())
    if (parameter.value().dim() == 2 && parameter.key() != "input.embedding.weight") count += double(parameter.value().numel());
  return count;
}

struct Timed {
  std::unique_ptr<Decoder> decoder;
  std::vector<std::vector<double>> seconds;  // of each step, by position
  std::string implementation;
  int64_t state_bytes = 0;
};

// Adds the times of `count` steps that follow the token number `position`.
void time_steps(Timed& timed, size_t index, int64_t position, int64_t count) {
  auto& decoder = *timed.decoder;
  const auto batch = decoder.options().batch;
  decoder.reset();
  if (position > 0) decoder.prefill(at::randint(256, {batch, position}, at::kLong));
  const auto tokens = at::randint(256, {kWarmupSteps + count, batch}, at::kLong);
  for (int64_t i = 0; i < kWarmupSteps + count; ++i) {
    const auto token = tokens[i];
    const auto seconds = seconds_of([&] { decoder.step(token); });
    if (i >= kWarmupSteps) timed.seconds[index].push_back(seconds);
  }
  timed.implementation = decoder.implementation();
  timed.state_bytes = std::max(timed.state_bytes, decoder.state_bytes());
}

Json summary(const std::vector<double>& seconds) {
  return {{"median_s", attnbench::median(seconds)},
          {"lower_quartile_s", quantile(seconds, 0.25)},
          {"upper_quartile_s", quantile(seconds, 0.75)}};
}

}  // namespace

Json decode_speed(const Json& request) {
  const auto batch = request.at("batch").get<int64_t>(), count = request.at("tokens").get<int64_t>();
  const auto threads = request.at("threads").get<int64_t>();
  const auto repetitions = request.value("repetitions", int64_t{3});
  const auto positions = request.at("positions").get<std::vector<int64_t>>();
  TORCH_CHECK_VALUE(count >= 1 && threads >= 1 && repetitions >= 1 && !positions.empty() &&
                        *std::min_element(positions.begin(), positions.end()) >= 0,
                    "decode-speed: expected tokens, threads and repetitions of at least 1, and a list of positions from 0 on");
  attnbench::use_threads(threads);
  at::manual_seed(0);
  SequenceModel model(image_model(request.at("layers").get<int64_t>(), request.at("method").get<std::string>()));
  model->eval();
  const auto longest = *std::max_element(positions.begin(), positions.end()) + count + kWarmupSteps;
  std::vector<Timed> all;
  for (const auto& kernel : {request.value("kernel", std::string("auto")), std::string("modules")})
    all.push_back({make_decoder(model, {.batch = batch, .max_tokens = longest, .kernel = kernel}),
                   std::vector<std::vector<double>>(positions.size()), "", 0});

  const double bytes = double(parameter_count(*model)) * 4;
  std::vector<double> read, cached, multiply_add, sampling;
  std::vector<uint8_t> drawn(static_cast<size_t>(batch));
  LogisticMixtureSampler sample(LogisticSampler::as_likelihood);
  for (int64_t repetition = 0; repetition < repetitions; ++repetition) {
    const auto ceilings = attnbench::measure_ceilings(threads);
    read.push_back(ceilings.read_gb_s), multiply_add.push_back(ceilings.fma_float32_gflop_s);
    cached.push_back(cached_read_gb_s(int64_t(bytes), threads));
    for (size_t i = 0; i < positions.size(); ++i)
      for (auto& timed : all) time_steps(timed, i, positions[i], count);
    const auto outputs = at::randn({batch, model->options().outputs});
    for (int run = 0; run < 100; ++run) sampling.push_back(seconds_of([&] { sample(outputs, drawn.data()); }));
  }

  Json answer = {{"kind", "decode-speed"},
                 {"method", request.at("method")},
                 {"batch", batch},
                 {"threads", threads},
                 {"parameter_bytes", bytes},
                 {"read_gb_s", attnbench::median(read)},
                 {"cached_read_gb_s", attnbench::median(cached)},
                 {"multiply_add_gflop_s", attnbench::median(multiply_add)},
                 {"sampling_s", attnbench::median(sampling)},
                 {"implementation", all[0].implementation},
                 {"state_bytes", all[0].state_bytes},
                 {"positions", Json::array()}};
  for (size_t i = 0; i < positions.size(); ++i) {
    auto step = summary(all[0].seconds[i]);
    const double seconds = step["median_s"].get<double>();
    step["position"] = positions[i];
    step["ratio_to_reading"] = seconds / (bytes / (attnbench::median(read) * 1e9));
    step["ratio_to_cached"] = seconds / (bytes / (attnbench::median(cached) * 1e9));
    step["multiply_add_share"] = 2 * double(batch) * multiply_adds(model) / seconds / (attnbench::median(multiply_add) * 1e9);
    step["modules"] = summary(all[1].seconds[i]);
    answer["positions"].push_back(step);
  }
  return answer;
}

}  // namespace experiments
