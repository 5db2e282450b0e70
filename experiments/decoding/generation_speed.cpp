// Times tokens at several positions of an image, and whole images where these are fast enough.
#include "experiments/decoding/generation_speed.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/decoding/decoder.h"
#include "experiments/decoding/generate.h"
#include "experiments/losses/logistic_mixture.h"
#include "experiments/nn/transformer.h"
#include "harness/statistics/statistics.h"
#include "harness/worker/cpu/memory.h"
#include "harness/worker/device.h"

namespace experiments {
namespace {

using attnbench::Generation;
using attnbench::Json;
using Clock = std::chrono::steady_clock;

// At each timed position, consecutive tokens are generated. The first ones are not timed, because they find caches that the
// prefill has filled with other data, which is not the case in the generation of an image.
constexpr size_t kWarmTokens = 2;
constexpr size_t kTimedTokens = 8;        // at most
constexpr double kPositionBudgetS = 0.2;  // no further token is generated at a position after this time

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

SequenceModel untrained_model(const Generation& g, const at::Device& device) {
  torch::manual_seed(0);
  auto options = image_model(g.layers, g.method);
  options.encoder.heads = g.heads;
  options.encoder.head_dim = g.head_dim;
  options.encoder.width = g.heads * g.head_dim;
  SequenceModel model(options);
  model->to(device);
  model->eval();
  return model;
}

DecoderOptions decoder_options(const Generation& g, attnbench::Device& device) {
  DecoderOptions options{.batch = g.batch, .max_tokens = g.length};
  if (g.device == "cuda") options.capture = [&device](const std::function<void()>& work) { return device.capture(work); };
  return options;
}

struct TimedToken {
  int64_t position;  // the number of tokens before it
  double s;
};

class Measurement {
 public:
  Measurement(const Generation& generation, attnbench::Device& device)
      : generation_(generation),
        generator_(at::make_generator<at::CPUGeneratorImpl>(uint64_t{0})),
        model_(untrained_model(generation, device.torch_device())),
        decoder_(make_decoder(model_, decoder_options(generation, device))),
        tokens_(at::randint(0, 256, {generation.batch, generation.length}, generator_, at::kLong).to(device.torch_device())) {
    const auto can = model_->encoder->layers.front()->attention->method().capabilities();
    recomputes_prefix_ = !can.decoding || can.steps_recompute_prefix;
  }

  Json run() {
    time_token(0);  // warms up
    timed_tokens_ = 0;
    std::vector<TimedToken> timed;
    for (int64_t i = 0; i < generation_.positions; ++i) {
      const auto position = i * (generation_.length - 1) / (generation_.positions - 1);
      timed.push_back({position, time_token(position)});
      if (timed.back().s > generation_.max_token_s) return skipped(timed.back());
    }
    const auto extrapolated_s = sum(timed);
    std::vector<double> batches;
    if (extrapolated_s <= generation_.whole_s)
      for (const auto begin = Clock::now(); batches.empty() || seconds_since(begin) < generation_.time_budget_s;)
        batches.push_back(time_batch());
    const auto batch_s = batches.empty() ? extrapolated_s : attnbench::median(batches);
    auto json = common();
    json.update({{"outcome", attnbench::outcome::measured},
                 {"batch_s", batch_s},
                 {"s_per_image", batch_s / double(generation_.batch)},
                 {"images_per_s", double(generation_.batch) / batch_s},
                 {"extrapolated", batches.empty()},
                 {"extrapolated_s", extrapolated_s},
                 {"batches", batches.size()},
                 {"timed_tokens", timed_tokens_},
                 {"token_first_ms", timed.front().s * 1e3},
                 {"token_last_ms", timed.back().s * 1e3}});
    return json;
  }

 private:
  // The time of a token that follows about `position` tokens, in seconds: the median over consecutive tokens.
  double time_token(int64_t position) {
    const auto tokens = int64_t(kWarmTokens + kTimedTokens);
    position = std::min(position, std::max<int64_t>(generation_.length - tokens, 0));
    decoder_->reset();
    if (!recomputes_prefix_ && position > 0) decoder_->prefill(tokens_.narrow(1, 0, position));
    std::vector<double> times;
    const auto begin = Clock::now();
    while (times.size() < kWarmTokens + kTimedTokens && position < generation_.length &&
           (times.size() <= kWarmTokens || seconds_since(begin) < kPositionBudgetS)) {
      times.push_back(time_next_token(position++));
      if (times.back() > generation_.max_token_s) return times.back();
    }
    times.erase(times.begin(), times.begin() + std::ptrdiff_t(std::min(kWarmTokens, times.size() - 1)));
    timed_tokens_ += int64_t(times.size());
    return attnbench::median(times);
  }

  // The time of the token that follows the `position` tokens of the decoder's state.
  double time_next_token(int64_t position) {
    if (recomputes_prefix_) decoder_->reset();
    const auto begin = Clock::now();
    // A step that computes the whole prefix again is the prefill of one token more.
    const auto& parameters = recomputes_prefix_ ? decoder_->prefill(tokens_.narrow(1, 0, position + 1))
                                                : decoder_->step(tokens_.select(1, position).contiguous());
    sample(parameters);
    return seconds_since(begin);
  }

  void sample(const at::Tensor& parameters) {
    std::vector<uint8_t> bytes(size_t(generation_.batch), 0);
    LogisticMixtureSampler draw(parse_logistic_sampler(generation_.sampler), generator_);
    draw(parameters.cpu(), bytes.data(), 1);
  }

  double time_batch() {
    const auto begin = Clock::now();
    generate(*decoder_, generation_.length, {.sampler = parse_logistic_sampler(generation_.sampler), .generator = generator_});
    return seconds_since(begin);
  }

  // The time of all tokens: between two timed positions the time of a token is taken to change linearly.
  static double sum(const std::vector<TimedToken>& timed) {
    double s = timed.front().s;
    for (size_t i = 1; i < timed.size(); ++i) {
      const auto &a = timed[i - 1], &b = timed[i];
      const auto tokens = double(b.position - a.position);
      // The tokens after a, up to b: each is a step further on the line from a to b.
      s += tokens * a.s + (b.s - a.s) * (tokens + 1) / 2;
    }
    return s;
  }

  Json common() const {
    return {{"implementation", decoder_->implementation()},
            {"weights", "untrained"},
            {"parameters", parameter_count(*model_)},
            {"state_bytes", decoder_->state_bytes()},
            {"peak_rss_bytes", attnbench::peak_resident_bytes()}};
  }

  Json skipped(const TimedToken& token) const {
    auto json = common();
    json["outcome"] = attnbench::outcome::skipped;
    json["reason"] = "the token after " + std::to_string(token.position) + " tokens takes " + std::to_string(token.s) +
                     " s, more than max_token_s = " + Json(generation_.max_token_s).dump();
    return json;
  }

  Generation generation_;
  at::Generator generator_;
  SequenceModel model_;
  std::unique_ptr<Decoder> decoder_;
  at::Tensor tokens_;  // int64 [batch, length]
  bool recomputes_prefix_ = false;
  int64_t timed_tokens_ = 0;
};

}  // namespace

Json generation_speed(const Generation& generation) {
  // This loads the module with the CUDA kernels, where the device is a GPU.
  const auto found = attnbench::find_device(generation.device);
  if (!found.device)
    return {{"outcome", attnbench::outcome::skipped}, {"reason", "there is no GPU that can be used: " + found.why_none}};
  at::set_num_threads(int(generation.threads));
  const at::NoGradGuard no_grad;
  return Measurement(generation, *found.device).run();
}

}  // namespace experiments
