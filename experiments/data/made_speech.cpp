// Draws spectra, a grammar, durations, speakers and noise, and utterances from these.
#include "experiments/data/made_speech.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace experiments {
namespace {

constexpr int64_t kBumps = 3;
constexpr int64_t kErlangShape = 4;  // the shape of the gamma distribution of the lengths
// Standard deviations of what speakers differ in, for speaker_variation = 1.
constexpr double kShiftBands = 1.5, kTilt = 0.7, kLevel = 0.7;
// The standard deviation of the logarithms of the bigram weights. A larger one makes a phone easier to guess from the one before
// it.
constexpr double kGrammarSpread = 1.5;
// The standard deviation of the logarithm of a phone's length.
constexpr double kDurationSpread = 0.25;
constexpr int64_t kMaxFrames = int64_t{1} << 24;  // keeps the sizes of tensors reasonable

at::Tensor uniform(at::IntArrayRef sizes, double low, double high, const at::Generator& generator) {
  return at::rand(sizes, generator, at::kDouble) * (high - low) + low;
}

// The means of the neighbourhoods of each frame, from `half` frames before it to `half` frames behind it, with weights that fall
// linearly. The first and the last frame are repeated at the ends.
at::Tensor blended(const at::Tensor& frames, int64_t half) {
  if (half == 0) return frames;
  const auto rising = at::arange(1, half + 2, at::kFloat);
  const auto weights = at::cat({rising, rising.narrow(0, 0, half).flip(0)});
  const auto bands = frames.t().unsqueeze(1);  // [40, 1, frames]
  const auto index = at::arange(-half, frames.size(0) + half).clamp(0, frames.size(0) - 1);
  return at::conv1d(bands.index_select(2, index), (weights / weights.sum()).view({1, 1, -1})).squeeze(1).t();
}

}  // namespace

MadeSpeech::MadeSpeech(const MadeSpeechSettings& settings) : settings_(settings) {
  const auto& s = settings_;
  TORCH_CHECK_VALUE(s.phones >= 2 && s.phones <= 10'000, "made speech: phones = ", s.phones, ", expected 2 to 10000");
  TORCH_CHECK_VALUE(s.min_phone_frames >= 1 && s.min_phone_frames <= kMaxFrames,
                    "made speech: min_phone_frames = ", s.min_phone_frames, ", expected at least 1");
  TORCH_CHECK_VALUE(s.mean_phone_frames >= double(s.min_phone_frames) && s.mean_phone_frames <= double(kMaxFrames),
                    "made speech: mean_phone_frames = ", s.mean_phone_frames,
                    ", expected at least min_phone_frames = ", s.min_phone_frames);
  TORCH_CHECK_VALUE(s.mean_frames >= 4 * double(s.min_phone_frames), "made speech: mean_frames = ", s.mean_frames,
                    ", expected at least 4 min_phone_frames = ", 4 * s.min_phone_frames);
  TORCH_CHECK_VALUE(double(s.max_frames) >= s.mean_frames && s.max_frames <= kMaxFrames,
                    "made speech: max_frames = ", s.max_frames, ", expected mean_frames = ", s.mean_frames, " to ", kMaxFrames);
  TORCH_CHECK_VALUE(s.transition_frames >= 0 && s.transition_frames <= 1000,
                    "made speech: transition_frames = ", s.transition_frames, ", expected 0 to 1000");
  TORCH_CHECK_VALUE(s.speaker_variation >= 0 && std::isfinite(s.speaker_variation),
                    "made speech: speaker_variation = ", s.speaker_variation, ", expected a finite number of at least 0");
  TORCH_CHECK_VALUE(s.noise >= 0 && std::isfinite(s.noise), "made speech: noise = ", s.noise,
                    ", expected a finite number of at least 0");

  const auto generator = at::make_generator<at::CPUGeneratorImpl>(s.language_seed);
  auto logits = at::randn({s.phones, s.phones}, generator, at::kDouble) * kGrammarSpread;
  logits.fill_diagonal_(-INFINITY);
  bigrams_ = at::softmax(logits, 1);
  cumulative_ = bigrams_.cumsum(1);
  centres_ = uniform({s.phones, kBumps}, 1, double(kSpeechBands) - 2, generator);
  widths_ = uniform({s.phones, kBumps}, 1.5, 3, generator);
  heights_ = uniform({s.phones, kBumps}, 1, 2.5, generator);
  levels_ = uniform({s.phones, 1}, -0.5, 0.5, generator);
  const auto lengths = uniform({s.phones}, 0.6, 1.4, generator) * s.mean_phone_frames;
  phone_frames_.assign(lengths.const_data_ptr<double>(), lengths.const_data_ptr<double>() + s.phones);
}

std::vector<std::string> MadeSpeech::phones() const {
  std::vector<std::string> names;
  for (int64_t phone = 1; phone <= settings_.phones; ++phone) names.push_back(c10::str("p", phone));
  return names;
}

at::Tensor MadeSpeech::spectra(double shift, double tilt, double level) const {
  const auto band = at::arange(kSpeechBands, at::kDouble);
  const auto distance = (band - shift - centres_.unsqueeze(2)) / widths_.unsqueeze(2);  // [phones, bumps, 40]
  const auto bumps = (heights_.unsqueeze(2) * at::exp(-0.5 * distance.square())).sum(1);
  return (bumps + levels_ + tilt * at::linspace(-1, 1, kSpeechBands, at::kDouble) + level).to(at::kFloat);
}

int64_t MadeSpeech::draw_length(at::Generator& generator) const {
  const auto shortest = std::max<double>(settings_.mean_frames / 8, double(settings_.min_phone_frames));
  while (true) {
    // The sum of exponentially distributed numbers has a gamma distribution with their number as the shape.
    const auto exponential = -at::log1p(-at::rand({kErlangShape}, generator, at::kDouble));
    const auto length = exponential.sum().item<double>() * settings_.mean_frames / double(kErlangShape);
    const auto frames = std::llround(length);
    if (frames <= settings_.max_frames && double(frames) >= shortest) return frames;
  }
}

MadeUtterance MadeSpeech::next(at::Generator generator) const {
  TORCH_CHECK_VALUE(generator.defined() && generator.device().is_cpu(), "made speech: expected a generator of the CPU");
  const auto& s = settings_;
  const auto frames = draw_length(generator);
  // More phones than can fit. Each needs a number that chooses it and a number for its length.
  const auto most = frames / s.min_phone_frames;
  const auto choices = at::rand({most}, generator, at::kDouble);
  const auto lengths = at::randn({most}, generator, at::kDouble);
  const auto choice = choices.accessor<double, 1>(), length = lengths.accessor<double, 1>();
  const auto* const cumulative = cumulative_.const_data_ptr<double>();

  MadeUtterance made;
  auto& labels = made.utterance.labels;
  std::vector<int64_t> alignment;
  int64_t phone = std::min(int64_t(choice[0] * double(s.phones)), s.phones - 1);
  for (int64_t i = 0; int64_t(alignment.size()) < frames; ++i) {
    if (i > 0) {
      const auto* const row = cumulative + phone * s.phones;
      auto next = std::upper_bound(row, row + s.phones, choice[i]) - row;
      // Rounding can leave the last sum slightly below 1.
      if (next == s.phones) next = phone == s.phones - 1 ? s.phones - 2 : s.phones - 1;
      phone = next;
    }
    const auto mean = phone_frames_[size_t(phone)];
    auto count = std::max<int64_t>(s.min_phone_frames, std::llround(mean * std::exp(kDurationSpread * length[i])));
    // The last phone takes the frames that are left, so that none is shorter than min_phone_frames.
    const auto left = frames - int64_t(alignment.size());
    if (left - count < s.min_phone_frames) count = left;
    labels.push_back(phone + 1);
    alignment.insert(alignment.end(), size_t(count), phone + 1);
  }
  made.alignment = at::tensor(alignment, at::kLong);
  made.utterance.frames = frames;

  const auto speaker = at::randn({3}, generator, at::kDouble) * s.speaker_variation;
  const auto values = speaker.accessor<double, 1>();
  const auto all = spectra(values[0] * kShiftBands, values[1] * kTilt, values[2] * kLevel);
  const auto clean = blended(all.index_select(0, made.alignment - 1), s.transition_frames);
  made.utterance.features = (clean + at::randn({frames, kSpeechBands}, generator, at::kFloat) * s.noise).contiguous();
  return made;
}

SpeechSet make_speech(const MadeSpeechSettings& settings, int64_t training, int64_t validation, uint64_t seed) {
  TORCH_CHECK_VALUE(training >= 1 && validation >= 1, "made speech: ", training, " and ", validation,
                    " utterances to train with and to validate with, expected at least 1 each");
  const MadeSpeech language(settings);
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto draw = [&](int64_t count, const std::string& name) {
    std::vector<Utterance> utterances;
    for (int64_t i = 1; i <= count; ++i) {
      auto utterance = language.next(generator).utterance;
      utterance.id = name + "-" + std::to_string(i);
      utterances.push_back(std::move(utterance));
    }
    return utterances;
  };
  SpeechSet set;
  set.phones = language.phones();
  set.training = draw(training, "training");
  set.validation = draw(validation, "validation");
  return set;
}

}  // namespace experiments
