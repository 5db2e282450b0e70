// Speech for models that are trained with connectionist temporal classification (CTC): features of frames and sequences of
// phones.
//
//   const auto set = load_speech("/data/wsj");
//   for (const auto& indices : batches_by_length(set.training, 10, generator)) {
//     const auto batch = speech_batch(set.training, indices);
//     …  // torch::ctc_loss(log_probs, batch.labels, batch.frame_lengths, batch.label_lengths)
//   }
//
// load_speech() reads a folder of these files:
//
//   phones.txt       The names of the phones, one on each line. The phone on the first line has label 1, the next one label 2 and
//   so
//                    on; label 0 is the blank of CTC and has no line. A name contains no white space.
//   training.tsv     The utterances to train with, one on each line, as three columns that are separated by one tab:
//   validation.tsv     1. the identifier of the utterance, which is unique in its file;
//                      2. the path of its features, either absolute or relative to the folder;
//                      3. its transcript: the names of one or more phones, separated by spaces.
//   features         For each utterance a .npy file as numpy.save() writes it (npy.h), float32 [frames, 40]: the logarithms of 40
//   mel
//                    filterbank energies of each frame.
//
// Text is UTF-8 with line ends \n or \r\n. There are no empty lines and no header line.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace experiments {

inline constexpr int64_t kSpeechBands = 40;  // features of a frame

struct Utterance {
  std::string id;
  int64_t frames = 0;           // at least 1
  std::vector<int64_t> labels;  // 1…phones, at least one
  std::string file;             // the .npy file of the features; empty if they are in memory
  at::Tensor features;          // float32 [frames, 40]; undefined if they are in `file`
};

struct SpeechSet {
  std::vector<std::string> phones;  // the name of label l is phones[l - 1]
  std::vector<Utterance> training, validation;
};

// Reads phones.txt and both lists, and checks the header and the size of every file of features. The features themselves are read
// by speech_batch(), since those of a whole data set may exceed the memory. Throws c10::ValueError, naming the file, the line or
// the offset, what was found and what was expected, if anything differs from the format above, or if an utterance has fewer
// frames than CTC needs for its transcript (one for each phone, and one for the blank between two equal phones).
SpeechSet load_speech(const std::string& folder);

// Writes a set as a folder that load_speech() reads, and makes the folder if there is none. Throws c10::ValueError if a file
// cannot be written, or if an identifier or a name of a phone is not allowed in the format.
void write_speech(const std::string& folder, const SpeechSet& set);

// The parts of load_speech() that read text. `path` is used in messages. The utterances have `file` as it is written in the text,
// and no frames. Both throw as load_speech() does.
std::vector<std::string> parse_phones(const std::string& path, std::string_view text);
std::vector<Utterance> parse_utterances(const std::string& path, std::string_view text, const std::vector<std::string>& phones);

// The indices of all utterances in batches of utterances of similar length, so that little is padded. Each batch has `batch`
// utterances, except one that has the rest. Lengths are changed by up to 5 % at random before the utterances are sorted, so that
// other utterances come together in the next epoch; the batches are in random order. The generator is one of the CPU. Throws
// c10::ValueError if `batch` is below 1, or if the generator is not one of the CPU.
std::vector<std::vector<int64_t>> batches_by_length(const std::vector<Utterance>& utterances, int64_t batch,
                                                    at::Generator generator);

struct SpeechBatch {
  at::Tensor features;       // float32 [B, T, 40], T = the largest of frame_lengths; zeros behind the end of an utterance
  at::Tensor frame_lengths;  // int64 [B]
  at::Tensor labels;  // int64 [sum of label_lengths]: the labels of the first utterance, then those of the second and so on
  at::Tensor label_lengths;  // int64 [B]
};

// The utterances at `indices`, whose features are read from their files if they are not in memory. Throws c10::ValueError if
// there is no index, if an index is out of range, or if features differ in shape from what load_speech() found.
SpeechBatch speech_batch(const std::vector<Utterance>& utterances, const std::vector<int64_t>& indices);

}  // namespace experiments
