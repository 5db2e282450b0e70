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
  TORCH_CHECK_VALUE(s.max_n <= (s.length - 2) / 2, "copy task: max_n = ", s.max_n, ", expected at most ", (s.length - 2) / 2,
                    ", so that two copies and two separators fit into length = ", s.length);
}

CopyBatch CopyTask::next(int64_t batch, at::Generator generator) const {
  TORCH_CHECK_VALUE(batch >= 1, "copy task: batch = ", batch, ", expected at least 1");
  TORCH_CHECK_VALUE(generator.defined() && generator.device().is_cpu(), "copy task: expected a generator of the CPU");
  const auto& s = settings_;
  const auto n = at::randint(s.min_n, s.max_n + 1, {batch, 1}, generator, at::kLong);
  const auto symbols = at::randint(1, s.symbols + 1, {batch, s.max_n}, generator, at::kLong);
  const auto position = at::arange(s.length + 1).unsqueeze(0);
  const auto first = position < n;
  const auto second = (position > n).logical_and(position <= 2 * n);
  // Which symbol stands at a position of one of the two copies; unused elsewhere.
  const auto index = at::where(first, position, position - n - 1).clamp(0, s.max_n - 1);
  const auto tokens = symbols.gather(1, index) * first.logical_or(second);
  const auto target = position.narrow(1, 0, s.length);
  return {tokens.narrow(1, 0, s.length).contiguous(), tokens.narrow(1, 1, s.length).contiguous(),
          (target >= n - 1).logical_and(target < 2 * n)};
}

}  // namespace experiments
