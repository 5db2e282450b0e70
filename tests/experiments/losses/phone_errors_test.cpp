// Tests of best path decoding and of phone error rates.
#include "experiments/losses/phone_errors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/errors_of.h"

namespace experiments {
namespace {

using Labels = std::vector<int64_t>;

// Log-probabilities whose largest class at each frame is the given one.
at::Tensor frames_of(const std::vector<Labels>& classes, int64_t phones) {
  auto scores = at::zeros({int64_t(classes.size()), int64_t(classes.front().size()), phones + 1});
  for (size_t b = 0; b < classes.size(); ++b)
    for (size_t t = 0; t < classes[b].size(); ++t) scores[int64_t(b)][int64_t(t)][classes[b][t]] = 5;
  return at::log_softmax(scores, -1);
}

// The edit distance by its recursive definition.
int64_t slow_distance(const Labels& a, const Labels& b, size_t i, size_t j) {
  if (i == 0 || j == 0) return int64_t(i + j);
  return std::min({slow_distance(a, b, i - 1, j) + 1, slow_distance(a, b, i, j - 1) + 1,
                   slow_distance(a, b, i - 1, j - 1) + (a[i - 1] != b[j - 1])});
}

TEST(BestPaths, RemoveRepetitionsAndThenBlanks) {
  const auto paths = best_paths(frames_of({{1, 1, 0, 1, 2, 2, 0}, {0, 0, 3, 3, 1, 3, 3}}, 3), at::tensor({7, 7}, at::kLong));
  EXPECT_EQ(paths, (std::vector<Labels>{{1, 1, 2}, {3, 1, 3}}));
}

TEST(BestPaths, EndWithTheUtterance) {
  const auto paths = best_paths(frames_of({{1, 0, 2, 3}, {1, 2, 3, 1}}, 3), at::tensor({3, 0}, at::kLong));
  EXPECT_EQ(paths, (std::vector<Labels>{{1, 2}, {}}));
}

TEST(BestPaths, RefuseOtherArguments) {
  const auto frames = frames_of({{1, 0}}, 2);
  EXPECT_CONTAINS(attnbench::message_of<c10::ValueError>([&] { best_paths(frames[0], at::tensor({2}, at::kLong)); }),
                  "expected [batch, frames, phones + 1]");
  EXPECT_CONTAINS(attnbench::message_of<c10::ValueError>([&] { best_paths(frames, at::tensor({3}, at::kLong)); }),
                  "frame_lengths[0] = 3, expected 0 to 2");
  EXPECT_CONTAINS(attnbench::message_of<c10::ValueError>([&] {
                    best_paths(frames, at::tensor({2, 2}, at::kLong));
                  }),
                  "expected int64 [1]");
}

TEST(EditDistance, IsTheSmallestNumberOfChanges) {
  EXPECT_EQ(edit_distance({}, {}), 0);
  EXPECT_EQ(edit_distance({1, 2, 3}, {}), 3);
  EXPECT_EQ(edit_distance({}, {1, 2}), 2);
  EXPECT_EQ(edit_distance({1, 2, 3}, {2, 3, 4}), 2);
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const auto draw = [&] {
      Labels labels(random() % 6);
      for (auto& label : labels) label = int64_t(random() % 3);
      return labels;
    };
    const auto a = draw(), b = draw();
    EXPECT_EQ(edit_distance(a, b), slow_distance(a, b, a.size(), b.size()));
  }
}

TEST(PhoneErrorRate, DividesTheErrorsByTheNumberOfPhones) {
  EXPECT_DOUBLE_EQ(phone_error_rate({{1, 2}, {3}}, {{1, 2, 3}, {3, 1}}), 2.0 / 5);
  EXPECT_DOUBLE_EQ(phone_error_rate({{1, 2, 3}}, {{1}}), 2.0);  // insertions can exceed the number of phones
  EXPECT_CONTAINS(attnbench::message_of<c10::ValueError>([] {
                    phone_error_rate({{}}, {{1}, {2}});
                  }),
                  "1 answers for 2 utterances");
  EXPECT_CONTAINS(attnbench::message_of<c10::ValueError>([] { phone_error_rate({{1}}, {{}}); }), "have no phones");
}

TEST(ChanceErrorRate, AnswersWithTheTranscriptOfAnotherUtterance) {
  EXPECT_DOUBLE_EQ(chance_error_rate({{1, 2, 3}}), 1);
  // By length: {1}, {2, 3}, {4, 5, 6} are answered with {2, 3}, {4, 5, 6} and {1}.
  EXPECT_DOUBLE_EQ(chance_error_rate({{4, 5, 6}, {1}, {2, 3}}), (2.0 + 3 + 3) / 6);
  // Utterances of the same sentence have the same answer, which is another sentence.
  EXPECT_DOUBLE_EQ(chance_error_rate({{2, 3}, {2, 3}, {1}, {1}, {2, 3}}), (3 * 2 + 2 * 2.0) / 8);
  EXPECT_DOUBLE_EQ(chance_error_rate({{2, 3}, {2, 3}}), 1);
}

}  // namespace
}  // namespace experiments
