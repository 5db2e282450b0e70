// Tests of the copy task.
#include "experiments/data/copy_task.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/experiments/generator.h"
#include "tests/support/errors_of.h"

namespace experiments {
namespace {

using attnbench::message_of;
using attnbench::seeded;

// Checks every token of a batch against the definition, one at a time, and returns how often each n occurs.
std::map<int64_t, int64_t> check_batch(const CopyTaskSettings& s, const CopyBatch& batch, int64_t size) {
  std::map<int64_t, int64_t> counts;
  for (const auto& tensor : {batch.inputs, batch.targets, batch.mask})
    EXPECT_EQ(tensor.sizes(), (at::IntArrayRef{size, s.length}));
  EXPECT_EQ(batch.inputs.scalar_type(), at::kLong);
  EXPECT_EQ(batch.targets.scalar_type(), at::kLong);
  EXPECT_EQ(batch.mask.scalar_type(), at::kBool);
  const auto x = batch.inputs.accessor<int64_t, 2>(), y = batch.targets.accessor<int64_t, 2>();
  const auto mask = batch.mask.accessor<bool, 2>();
  for (int64_t b = 0; b < size; ++b) {
    int64_t n = 0;
    while (n < s.length && x[b][n] != 0) ++n;
    EXPECT_GE(n, s.min_n);
    EXPECT_LE(n, s.max_n);
    ++counts[n];
    for (int64_t i = 0; i < s.length; ++i) {
      if (i < n) {
        EXPECT_GE(x[b][i], 1);
        EXPECT_LE(x[b][i], s.symbols);
      }
      const auto expected = i < n ? x[b][i] : i == n || i > 2 * n ? 0 : x[b][i - n - 1];
      EXPECT_EQ(x[b][i], expected) << "entry " << b << ", position " << i << ", n = " << n;
      EXPECT_EQ(y[b][i], i + 1 < s.length ? x[b][i + 1] : 0) << "entry " << b << ", position " << i;
      EXPECT_EQ(mask[b][i], i >= n - 1 && i < 2 * n) << "entry " << b << ", position " << i << ", n = " << n;
    }
  }
  return counts;
}

TEST(CopyTask, EveryTokenAndMaskFollowsTheDefinition) {
  const CopyTask task;
  EXPECT_EQ(task.settings().length, 128);
  const auto counts = check_batch(task.settings(), task.next(2000, seeded(1)), 2000);
  // All 31 values of n occur, each about 65 times. A binomial count is outside 25…125 less than once in 10^6.
  EXPECT_EQ(counts.size(), 31U);
  for (const auto& [n, count] : counts) EXPECT_TRUE(count > 25 && count < 125) << n << " occurs " << count << " times";
}

TEST(CopyTask, FillersStandBetweenTheSymbolsAndTheirCopies) {
  const CopyTaskSettings s{.length = 40, .symbols = 3, .min_n = 2, .max_n = 5, .max_gap = 28};
  const auto batch = CopyTask(s).next(500, seeded(1));
  const auto x = batch.inputs.accessor<int64_t, 2>(), y = batch.targets.accessor<int64_t, 2>();
  const auto mask = batch.mask.accessor<bool, 2>();
  std::map<int64_t, int64_t> gaps;
  for (int64_t b = 0; b < 500; ++b) {
    int64_t n = 0, gap = 0;
    while (x[b][n] != 0) ++n;
    EXPECT_TRUE(n >= 2 && n <= 5) << n;
    while (x[b][n + 1 + gap] == 4) ++gap;
    ++gaps[gap];
    EXPECT_EQ(x[b][n + 1 + gap], 0);
    const auto begin = n + gap + 2;
    for (int64_t i = 0; i < 40; ++i) {
      const bool is_copy = i >= begin - 1 && i < begin + n - 1;
      EXPECT_EQ(mask[b][i], is_copy) << "entry " << b << ", position " << i;
      if (is_copy) {
        EXPECT_EQ(y[b][i], x[b][i - (begin - 1)]);
      }
      if (i + 1 < 40) {
        EXPECT_EQ(y[b][i], x[b][i + 1]);
      }
      if (i >= begin + n) {
        EXPECT_EQ(x[b][i], 0);
      }
    }
  }
  EXPECT_EQ(gaps.size(), 29U) << "a gap of each length from 0 to 28 occurs";
}

TEST(CopyTask, SettingsChangeTheSizes) {
  for (const auto& s : {CopyTaskSettings{4, 1, 1, 1}, CopyTaskSettings{20, 3, 2, 9}, CopyTaskSettings{50, 10, 5, 5}}) {
    check_batch(s, CopyTask(s).next(50, seeded(2)), 50);
  }
}

TEST(CopyTask, AllSymbolsAreEquallyFrequent) {
  const CopyTask task;
  const auto inputs = task.next(1000, seeded(3)).inputs;
  const auto counts = at::bincount(inputs.flatten(), {}, 11).narrow(0, 1, 10).to(at::kDouble);
  // About 9400 each; the standard deviation is about 130, because each symbol is counted twice.
  EXPECT_LT((counts / counts.mean() - 1).abs().max().item<double>(), 0.08);
}

TEST(CopyTask, TheMaskedTargetsAreTheSeparatorAndTheRepeatedSymbols) {
  const CopyTaskSettings s{.length = 12, .symbols = 9, .min_n = 3, .max_n = 3};
  const auto batch = CopyTask(s).next(1, seeded(4));
  const auto scored = batch.targets.masked_select(batch.mask);
  EXPECT_TRUE(at::equal(scored, at::cat({at::zeros({1}, at::kLong), batch.inputs[0].narrow(0, 0, 3)})));
}

TEST(CopyTask, TheStateOfTheGeneratorDecidesTheBatch) {
  const CopyTask task;
  auto random = seeded(5);
  const auto first = task.next(8, random);
  const auto state = random.get_state();
  const auto second = task.next(8, random);
  EXPECT_FALSE(at::equal(first.inputs, second.inputs));
  EXPECT_TRUE(at::equal(task.next(8, seeded(5)).inputs, first.inputs));
  auto other = seeded(6);
  EXPECT_FALSE(at::equal(task.next(8, other).inputs, first.inputs));
  other.set_state(state);
  const auto restored = task.next(8, other);
  EXPECT_TRUE(at::equal(restored.inputs, second.inputs));
  EXPECT_TRUE(at::equal(restored.targets, second.targets));
  EXPECT_TRUE(at::equal(restored.mask, second.mask));
}

TEST(CopyTask, RefusesSettingsOutsideTheirRanges) {
  const auto error = [](const CopyTaskSettings& s) { return message_of<c10::ValueError>([&] { CopyTask task(s); }); };
  EXPECT_CONTAINS(error({.max_n = 64}), "copy task: max_n = 64, expected at most 63");
  EXPECT_NO_THROW(CopyTask({.max_n = 63}));
  EXPECT_CONTAINS(error({.min_n = 0}), "min_n = 0, expected at least 1");
  EXPECT_CONTAINS(error({.min_n = 40, .max_n = 39}), "max_n = 39, expected at least min_n = 40");
  EXPECT_CONTAINS(error({.symbols = 0}), "symbols = 0, expected 1 to");
  EXPECT_CONTAINS(error({.length = 3, .min_n = 1, .max_n = 1}), "length = 3");
  EXPECT_CONTAINS(error({.length = -1}), "length = -1");
  EXPECT_CONTAINS(error({.length = INT64_MAX}), "length = 9223372036854775807");
}

TEST(CopyTask, RefusesAnEmptyBatchAndAGeneratorThatIsMissing) {
  const CopyTask task;
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { task.next(0, seeded(1)); }), "batch = 0, expected at least 1");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { task.next(1, {}); }), "expected a generator of the CPU");
}

}  // namespace
}  // namespace experiments
