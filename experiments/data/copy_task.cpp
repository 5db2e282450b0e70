// Draws the sequences of the copy task, with or without a gap.
#include "experiments/data/copy_task.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace experiments {

CopyTask::CopyTask(const CopyTaskSettings& settings) : settings_(settings) {
  const auto& s = settings_;
  // These limits keep the sums below from overflowing.
  constexpr int64_t kMax = int64_t{1} << 30;
  TORCH_CHECK_VALUE(s.symbols >= 1 && s.symbols <= kMax, "copy task: symbols = ", s.symbols, ", expected 1 to 2^30");
  TORCH_CHECK_VALUE(s.length >= 1 && s.length <= kMax, "copy task: length = ", s.length, ", expected 4 to 2^30");
  TORCH_CHECK_VALUE(s.min_n >= 1, "copy task: min_n = ", s.min_n, ", expected at least 1");
  TORCH_CHECK_VALUE(s.max_n >= s.min_n, "copy task: max_n = ", s.max_n, ", expected at least min_n = ", s.min_n);
  TORCH_CHECK_VALUE(s.max_gap >= 0 && s.max_gap <= s.length, "copy task: max_gap = ", s.max_gap,
                    ", expected 0 to length = ", s.length);
  const auto most = (s.length - 2 - s.max_gap) / 2;
  TORCH_CHECK_VALUE(s.max_n <= most, "copy task: max_n = ", s.max_n, ", expected at most ", most, ", so that two copies, ",
                    s.max_gap > 0 ? "the gap " : "", "and two separators fit into length = ", s.length);
}

CopyBatch CopyTask::next(int64_t batch, at::Generator generator) const {
  TORCH_CHECK_VALUE(batch >= 1, "copy task: batch = ", batch, ", expected at least 1");
  TORCH_CHECK_VALUE(generator.defined() && generator.device().is_cpu(), "copy task: expected a generator of the CPU");
  const auto& s = settings_;
  const auto n = at::randint(s.min_n, s.max_n + 1, {batch, 1}, generator, at::kLong);
  const auto symbols = at::randint(1, s.symbols + 1, {batch, s.max_n}, generator, at::kLong);
  const auto position = at::arange(s.length + 1).unsqueeze(0);
  const auto first = position < n;
  // Where the copies begin.
  auto begin = n + 1;
  if (s.max_gap > 0) begin = begin + at::randint(0, s.max_gap + 1, {batch, 1}, generator, at::kLong) + 1;
  const auto second = (position >= begin).logical_and(position < begin + n);
  // Which symbol stands at a position of one of the two copies; unused elsewhere.
  const auto index = at::where(first, position, position - begin).clamp(0, s.max_n - 1);
  auto tokens = symbols.gather(1, index) * first.logical_or(second);
  if (s.max_gap > 0) tokens.masked_fill_((position > n).logical_and(position < begin - 1), s.symbols + 1);
  const auto target = position.narrow(1, 0, s.length);
  const auto first_scored = s.max_gap > 0 ? begin - 1 : n - 1;
  return {tokens.narrow(1, 0, s.length).contiguous(), tokens.narrow(1, 1, s.length).contiguous(),
          (target >= first_scored).logical_and(target < begin + n - 1)};
}

}  // namespace experiments
