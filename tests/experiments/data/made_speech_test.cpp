// Tests of the made speech.
#include "experiments/data/made_speech.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/experiments/generator.h"
#include "tests/support/errors_of.h"

namespace experiments {
namespace {

using attnbench::message_of;
using attnbench::seeded;

// The share of the frames of 30 utterances whose nearest spectrum of an average speaker is that of their phone.
double nearest_frame_accuracy(const MadeSpeech& language) {
  const auto spectra = language.spectra();
  auto random = seeded(7);
  int64_t right = 0, frames = 0;
  for (int i = 0; i < 30; ++i) {
    const auto made = language.next(random);
    const auto nearest = at::cdist(made.utterance.features, spectra).argmin(1) + 1;
    right += nearest.eq(made.alignment).sum().item<int64_t>();
    frames += made.utterance.frames;
  }
  return double(right) / double(frames);
}

TEST(MadeSpeech, LengthsHaveTheMeanAndTheLimitOfTheSettings) {
  const MadeSpeech language;
  auto random = seeded(1);
  double sum = 0;
  int64_t longest = 0, phones = 0;
  constexpr int kCount = 300;
  for (int i = 0; i < kCount; ++i) {
    const auto made = language.next(random);
    sum += double(made.utterance.frames);
    longest = std::max(longest, made.utterance.frames);
    phones += int64_t(made.utterance.labels.size());
    EXPECT_GE(made.utterance.frames, 100);
  }
  EXPECT_NEAR(sum / kCount, 800, 120);  // five standard errors of 400 / √300
  EXPECT_GT(longest, 1600);
  EXPECT_LE(longest, 2400);
  EXPECT_NEAR(sum / double(phones), 8, 1);
}

TEST(MadeSpeech, TheLargestLengthIsRespected) {
  const MadeSpeech language({.mean_frames = 40, .max_frames = 45});
  auto random = seeded(2);
  for (int i = 0; i < 100; ++i) EXPECT_LE(language.next(random).utterance.frames, 45);
}

TEST(MadeSpeech, TheAlignmentHasTheLabelsInTheirOrder) {
  const MadeSpeechSettings settings{.phones = 5, .mean_frames = 100, .max_frames = 300};
  const MadeSpeech language(settings);
  auto random = seeded(3);
  for (int i = 0; i < 50; ++i) {
    const auto made = language.next(random);
    const auto& utterance = made.utterance;
    ASSERT_EQ(made.alignment.sizes(), (at::IntArrayRef{utterance.frames}));
    ASSERT_EQ(utterance.features.sizes(), (at::IntArrayRef{utterance.frames, 40}));
    EXPECT_EQ(utterance.features.scalar_type(), at::kFloat);
    const auto [labels, inverse, counts] = at::unique_consecutive(made.alignment, false, true);
    EXPECT_EQ(std::vector<int64_t>(labels.const_data_ptr<int64_t>(), labels.const_data_ptr<int64_t>() + labels.numel()),
              utterance.labels);
    EXPECT_GE(counts.min().item<int64_t>(), settings.min_phone_frames);
    EXPECT_TRUE(labels.min().item<int64_t>() >= 1 && labels.max().item<int64_t>() <= 5);
  }
}

TEST(MadeSpeech, PhonesFollowTheGrammar) {
  const MadeSpeech language({.phones = 4, .mean_frames = 2000, .max_frames = 6000});
  const auto& bigrams = language.bigrams();
  EXPECT_TRUE(at::allclose(bigrams.sum(1), at::ones({4}, at::kDouble)));
  EXPECT_EQ(bigrams.diagonal().abs().max().item<double>(), 0);
  auto counts = at::zeros({4, 4}, at::kDouble);
  auto count = counts.accessor<double, 2>();
  auto random = seeded(4);
  for (int i = 0; i < 60; ++i) {
    const auto labels = language.next(random).utterance.labels;
    for (size_t k = 1; k < labels.size(); ++k) count[labels[k - 1] - 1][labels[k] - 1] += 1;
  }
  // About 4000 pairs of each first phone.
  EXPECT_LT((counts / counts.sum(1, true) - bigrams).abs().max().item<double>(), 0.05);
  // The grammar says something: a phone is not followed by the others equally often.
  EXPECT_GT(bigrams.max().item<double>(), 0.5);
}

TEST(MadeSpeech, WithoutNoiseAndSpeakersAFrameHasTheSpectrumOfItsPhone) {
  const MadeSpeech language({.mean_frames = 100, .max_frames = 300, .transition_frames = 0, .speaker_variation = 0, .noise = 0});
  const auto made = language.next(seeded(5));
  EXPECT_TRUE(at::equal(made.utterance.features, language.spectra().index_select(0, made.alignment - 1)));
  EXPECT_EQ(nearest_frame_accuracy(language), 1);
}

TEST(MadeSpeech, NeighbouringPhonesAreBlendedAtTheirBoundary) {
  const MadeSpeech language(
      {.mean_frames = 100, .max_frames = 300, .min_phone_frames = 5, .transition_frames = 2, .speaker_variation = 0, .noise = 0});
  const auto made = language.next(seeded(6));
  const auto spectra = language.spectra();
  const auto first = made.utterance.labels[0] - 1, second = made.utterance.labels[1] - 1;
  const auto boundary = made.alignment.eq(made.alignment[0]).logical_not().to(at::kByte).argmax().item<int64_t>();
  // The weights of the frames from two before to two behind are 1, 2, 3, 2 and 1 of 9.
  const auto blend = [&](double weight) { return spectra[first] * (1 - weight) + spectra[second] * weight; };
  for (const auto& [offset, weight] :
       std::vector<std::pair<int64_t, double>>{{-3, 0}, {-2, 1. / 9}, {-1, 3. / 9}, {0, 6. / 9}, {1, 8. / 9}, {2, 1}}) {
    EXPECT_TRUE(at::allclose(made.utterance.features[boundary + offset], blend(weight), 1e-5, 1e-5)) << offset;
  }
  EXPECT_TRUE(at::allclose(made.utterance.features[0], spectra[first], 1e-5, 1e-5));
}

TEST(MadeSpeech, SpeakersShiftTiltAndRaiseTheSpectrum) {
  const MadeSpeech language;
  const auto average = language.spectra();
  // A shift by two bands moves what the bumps add by two bands.
  EXPECT_TRUE(at::allclose(language.spectra(2).narrow(1, 2, 38), average.narrow(1, 0, 38), 1e-5, 1e-5));
  const auto tilted = language.spectra(0, 0.5, 0.25) - average;
  EXPECT_TRUE(at::allclose(tilted, (at::linspace(-0.5, 0.5, 40) + 0.25).expand_as(average), 1e-4, 1e-5));
}

TEST(MadeSpeech, OneFrameDoesNotTellThePhoneReliably) {
  // Chance is 1 in 40.
  const auto accuracy = nearest_frame_accuracy(MadeSpeech());
  EXPECT_GT(accuracy, 0.2);
  EXPECT_LT(accuracy, 0.8);
}

TEST(MadeSpeech, TheSeedsDecideTheLanguageAndTheUtterances) {
  MadeSpeechSettings settings{.mean_frames = 50, .max_frames = 150};
  const auto features = [&](uint64_t seed) { return make_speech(settings, 2, 1, seed).training[1].features; };
  const auto before = features(1);
  EXPECT_TRUE(at::equal(features(1), before));
  EXPECT_FALSE(at::equal(features(2), before));
  const auto spectra = MadeSpeech(settings).spectra();
  EXPECT_TRUE(at::equal(MadeSpeech(settings).spectra(), spectra));
  settings.language_seed = 2;
  EXPECT_FALSE(at::equal(MadeSpeech(settings).spectra(), spectra));
}

TEST(MadeSpeech, ASetHasBothPartsWithIdentifiers) {
  const auto set = make_speech({.phones = 3, .mean_frames = 30, .max_frames = 60}, 3, 2, 1);
  EXPECT_EQ(set.phones, (std::vector<std::string>{"p1", "p2", "p3"}));
  ASSERT_EQ(set.training.size(), 3U);
  ASSERT_EQ(set.validation.size(), 2U);
  EXPECT_EQ(set.training[2].id, "training-3");
  EXPECT_EQ(set.validation[0].id, "validation-1");
  EXPECT_FALSE(at::equal(set.training[0].features, set.validation[0].features));
  EXPECT_EQ(speech_batch(set.training, {0, 1, 2}).features.size(0), 3);
}

TEST(MadeSpeech, RefusesSettingsOutsideTheirRanges) {
  const auto error = [](const MadeSpeechSettings& s) { return message_of<c10::ValueError>([&] { MadeSpeech language(s); }); };
  EXPECT_CONTAINS(error({.phones = 1}), "phones = 1, expected 2 to 10000");
  EXPECT_CONTAINS(error({.mean_frames = 11}), "mean_frames = 11, expected at least 4 min_phone_frames = 12");
  EXPECT_CONTAINS(error({.max_frames = 799}), "max_frames = 799, expected mean_frames = 800");
  EXPECT_CONTAINS(error({.mean_phone_frames = 2}), "mean_phone_frames = 2, expected at least min_phone_frames = 3");
  EXPECT_CONTAINS(error({.min_phone_frames = 0}), "min_phone_frames = 0, expected at least 1");
  EXPECT_CONTAINS(error({.transition_frames = -1}), "transition_frames = -1, expected 0 to 1000");
  EXPECT_CONTAINS(error({.speaker_variation = -1}), "speaker_variation = -1");
  EXPECT_CONTAINS(error({.noise = NAN}), "noise = nan");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { make_speech({}, 0, 1, 1); }), "expected at least 1 each");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { MadeSpeech().next({}); }), "expected a generator of the CPU");
}

}  // namespace
}  // namespace experiments
