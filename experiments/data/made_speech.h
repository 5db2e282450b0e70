// Made speech: a data set for CTC whose utterances are drawn at random, for runs without licensed recordings.
//
//   const MadeSpeech language(settings);
//   const auto utterance = language.next(generator).utterance;
//
// A language has phones and a bigram grammar, both drawn once. An utterance is a random walk through the grammar. Each phone
// lasts a random number of frames and has a spectrum of 40 bands with three bumps, as the formants of a vowel. Neighbouring
// phones are blended over a few frames. Each utterance has a speaker, who shifts the bumps, tilts the spectrum and changes its
// level, and noise is added to every frame. The spectra of speakers overlap: a phone cannot be told reliably from one frame, but
// it can from its frames and its neighbours.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/data/speech.h"

namespace experiments {

// The defaults give utterances as long as those of WSJ. Lengths are in frames, of which speech usually has 100 in a second.
struct MadeSpeechSettings {
  int64_t phones = 40;            // without the blank; at least 2
  double mean_frames = 800;       // mean length of an utterance; at least 4 min_phone_frames
  int64_t max_frames = 2400;      // largest length of an utterance; at least mean_frames
  double mean_phone_frames = 8;   // about the mean length of a phone; at least min_phone_frames
  int64_t min_phone_frames = 3;   // smallest length of a phone; at least 1
  int64_t transition_frames = 2;  // how many frames on each side of a boundary the neighbouring phone affects; at least 0
  double speaker_variation = 1;   // how much speakers differ; at least 0, where 0 makes them equal
  double noise = 1;               // standard deviation of the noise in every band; at least 0
  uint64_t language_seed = 1;     // of the phones and the grammar
};

struct MadeUtterance {
  Utterance utterance;   // with its features in memory, and without an identifier
  at::Tensor alignment;  // int64 [frames]: the label of the phone of each frame
};

class MadeSpeech {
 public:
  // Draws the language. Throws c10::ValueError, naming the setting and its value, if a setting is outside its range.
  explicit MadeSpeech(const MadeSpeechSettings& settings = {});

  // The names of the phones: "p1", "p2" and so on.
  std::vector<std::string> phones() const;
  // float64 [phones, phones]: the probability that the phone of the row is followed by the phone of the column. No phone follows
  // itself.
  const at::Tensor& bigrams() const { return bigrams_; }
  // float32 [phones, 40]: the spectra of a speaker who shifts the bumps by `shift` bands, adds `tilt` times a line from -1 in the
  // first band to 1 in the last one, and adds `level`. An average speaker has zero for all three.
  at::Tensor spectra(double shift = 0, double tilt = 0, double level = 0) const;

  // Draws an utterance with a generator of the CPU. Its length has a gamma distribution of shape 4 with the mean of the settings,
  // of which the lengths above max_frames and below mean_frames / 8 are drawn anew.
  MadeUtterance next(at::Generator generator) const;

 private:
  int64_t draw_length(at::Generator& generator) const;

  MadeSpeechSettings settings_;
  at::Tensor bigrams_, cumulative_;        // float64 [phones, phones]; the second has the sums along the rows
  at::Tensor centres_, widths_, heights_;  // float64 [phones, 3] in bands: of the bumps
  at::Tensor levels_;                      // float64 [phones, 1]: the spectra without bumps
  std::vector<double> phone_frames_;       // [phones]: the mean lengths of the phones
};

// A set of utterances of one language, in memory (160 bytes a frame), with the identifiers "training-1", "training-2" and so on.
// The same settings, numbers and seed give the same set. Throws c10::ValueError if a number of utterances is below 1, or as
// MadeSpeech() does.
SpeechSet make_speech(const MadeSpeechSettings& settings, int64_t training, int64_t validation, uint64_t seed);

}  // namespace experiments
