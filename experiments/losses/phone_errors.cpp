// Reads the most likely phones off the probabilities, and counts the changes that make two sequences equal.
#include "experiments/losses/phone_errors.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>

namespace experiments {

std::vector<std::vector<int64_t>> best_paths(const at::Tensor& log_probabilities, const at::Tensor& frame_lengths) {
  TORCH_CHECK_VALUE(log_probabilities.dim() == 3 && log_probabilities.size(2) >= 2, "best_paths: log_probabilities have shape ",
                    log_probabilities.sizes(), ", expected [batch, frames, phones + 1]");
  const auto batch = log_probabilities.size(0), frames = log_probabilities.size(1);
  TORCH_CHECK_VALUE(frame_lengths.is_cpu() && frame_lengths.scalar_type() == at::kLong && frame_lengths.dim() == 1 &&
                        frame_lengths.size(0) == batch,
                    "best_paths: frame_lengths are ", frame_lengths.scalar_type(), " ", frame_lengths.sizes(),
                    ", expected int64 [", batch, "] on the CPU");
  const auto classes = log_probabilities.argmax(-1).cpu().contiguous();
  const auto at = classes.accessor<int64_t, 2>();
  const auto lengths = frame_lengths.accessor<int64_t, 1>();
  std::vector<std::vector<int64_t>> paths(size_t(batch), std::vector<int64_t>{});
  for (int64_t b = 0; b < batch; ++b) {
    TORCH_CHECK_VALUE(lengths[b] >= 0 && lengths[b] <= frames, "best_paths: frame_lengths[", b, "] = ", lengths[b],
                      ", expected 0 to ", frames);
    int64_t before = 0;
    for (int64_t t = 0; t < lengths[b]; ++t) {
      if (at[b][t] != 0 && at[b][t] != before) paths[size_t(b)].push_back(at[b][t]);
      before = at[b][t];
    }
  }
  return paths;
}

int64_t edit_distance(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  // row[j] is the distance between the part of `a` so far and the first j labels of `b` (Wagner & Fischer 1974).
  std::vector<int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), int64_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    auto diagonal = row[0];
    row[0] = int64_t(i) + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const auto above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] != b[j])});
      diagonal = above;
    }
  }
  return row.back();
}

double phone_error_rate(const std::vector<std::vector<int64_t>>& recognised, const std::vector<std::vector<int64_t>>& truth) {
  TORCH_CHECK_VALUE(recognised.size() == truth.size(), "phone_error_rate: ", recognised.size(), " answers for ", truth.size(),
                    " utterances");
  int64_t errors = 0, labels = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    errors += edit_distance(recognised[i], truth[i]);
    labels += int64_t(truth[i].size());
  }
  TORCH_CHECK_VALUE(labels > 0, "phone_error_rate: the utterances have no phones");
  return double(errors) / double(labels);
}

double chance_error_rate(const std::vector<std::vector<int64_t>>& truth) {
  auto sorted = truth;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  std::vector<std::vector<int64_t>> different;
  for (const auto& transcript : sorted)
    if (std::find(different.begin(), different.end(), transcript) == different.end()) different.push_back(transcript);
  if (different.size() == 1) return 1;
  std::vector<std::vector<int64_t>> answers;
  for (const auto& transcript : truth) {
    const auto next = std::find(different.begin(), different.end(), transcript) + 1;
    answers.push_back(next == different.end() ? different.front() : *next);
  }
  return phone_error_rate(answers, truth);
}

}  // namespace experiments
