// Phone error rates of models that are trained with CTC.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace experiments {

// The phones of the most probable class of each frame, without repetitions and blanks (best path decoding; Graves et al. 2006,
// section 3.2): log_probabilities [B,T,phones+1] with the blank as class 0, and frame_lengths int64 [B] on the CPU from 0 to T →
// one list of labels 1…phones for each utterance. Throws c10::ValueError for other shapes and dtypes.
std::vector<std::vector<int64_t>> best_paths(const at::Tensor& log_probabilities, const at::Tensor& frame_lengths);

// The smallest number of insertions, deletions and substitutions that turn one sequence into the other (Levenshtein distance).
int64_t edit_distance(const std::vector<int64_t>& a, const std::vector<int64_t>& b);

// The sum of the edit distances, divided by the number of labels in `truth`. Both have one list for each utterance. Throws
// c10::ValueError if they differ in size or if `truth` has no label.
double phone_error_rate(const std::vector<std::vector<int64_t>>& recognised, const std::vector<std::vector<int64_t>>& truth);

// The error rate of a recogniser that knows the length of an utterance but not its sound: each utterance is answered with
// another transcript, the next longer one, and the longest with the shortest. 1 if there is a single transcript.
double chance_error_rate(const std::vector<std::vector<int64_t>>& truth);

}  // namespace experiments
