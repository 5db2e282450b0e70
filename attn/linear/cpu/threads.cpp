// Chooses how many splits each head's sequence has, and runs them on the threads.
#include "attn/linear/cpu/threads.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

namespace attn::cpu {
namespace {

using at::Tensor;

constexpr int64_t kMinSplit = 256;  // the smallest number of positions; starting a shorter split takes longer than it saves

// The time to compute the state of a split, as a fraction of the time of a causal pass over its positions.
constexpr double kSumOverScan = 0.42;

// The number of splits of a sequence that minimises the predicted time of a causal pass over all heads.
int64_t scanned_count(int64_t heads, int64_t positions, int64_t threads) {
  int64_t best = 1;
  double best_cost = 0;
  for (int64_t count = 1; count <= std::max<int64_t>(1, std::min(threads, positions / kMinSplit)); ++count) {
    const int64_t turns = (heads * count + threads - 1) / threads;
    const double passes = double(turns) / double(count);
    const double sums = kSumOverScan * double(heads * (count - 1)) / double(threads * count);
    if (count == 1 || passes + sums < 0.98 * best_cost) {
      best = count;
      best_cost = passes + sums;
    }
  }
  return best;
}

// The smallest number of splits that keeps all threads equally busy, limited so that splits are not shorter than kMinSplit.
int64_t independent_count(int64_t heads, int64_t positions, int64_t threads) {
  const auto max_count = std::max<int64_t>(1, positions / kMinSplit);
  return std::min(max_count, threads / std::gcd(std::max<int64_t>(1, heads), threads));
}

}  // namespace

Splits::Splits(int64_t positions, int64_t wanted)
    : length(positions),
      count(std::max<int64_t>(1, wanted)),
      size(std::max<int64_t>(kChunkRows, ((positions + count - 1) / count + kChunkRows - 1) / kChunkRows * kChunkRows)) {
  count = std::max<int64_t>(1, (positions + size - 1) / size);
}
int64_t Splits::begin(int64_t split) const { return std::min(length, split * size); }
int64_t Splits::end(int64_t split) const { return std::min(length, (split + 1) * size); }

LinearThreads::LinearThreads(const LinearKernels& kernels, const LinearHeads& heads)
    : heads_(heads),
      threads_(at::get_num_threads()),
      number_bytes_(int64_t(heads.accumulator().dtype().itemsize())),
      state_size_(state_size(heads.common())),
      scratch_(kernels.scratch_size(heads.common()), heads.accumulator()) {}

Splits LinearThreads::scanned_splits(int64_t positions) const {
  return {positions, scanned_count(heads_.count(), positions, threads_)};
}

Splits LinearThreads::independent_splits(int64_t positions) const {
  return {positions, independent_count(heads_.count(), positions, threads_)};
}

void LinearThreads::run(const Splits& splits, const Tensor& states, const Work& work) const {
  for_each_task(heads_.count() * splits.count, [&](int64_t task) {
    const auto head = task / splits.count, split = task % splits.count;
    auto* state = static_cast<char*>(states.data_ptr()) +
                  number_bytes_ * (head * states.stride(0) + (states.size(1) > 1 ? split * states.stride(1) : 0));
    work(heads_.head(head), splits.begin(split), splits.end(split), state, vector_of(state), scratch_.for_this_thread());
  });
}

Tensor LinearThreads::sum(int64_t positions, const Work& add) const {
  const auto splits = independent_splits(positions);
  const auto states = zeros(splits.count);
  run(splits, states, add);
  return splits.count == 1 ? states : total(states);
}

Tensor LinearThreads::initial_states(const Splits& splits, const Work& add, bool backwards) const {
  const auto states = zeros(splits.count);
  if (splits.count == 1) return states;
  // Computes the state of every split except the last or, if backwards, the first, which no other split begins with. Each split
  // is divided again, into as many pieces as keep all threads equally busy.
  const auto summed = splits.count - 1, offset = int64_t{backwards};
  const Splits pieces(splits.size, threads_ / std::gcd(heads_.count() * summed, threads_));
  const auto parts = zeros(summed * pieces.count);
  for_each_task(heads_.count() * summed * pieces.count, [&](int64_t task) {
    const auto head = task / (summed * pieces.count), part = task % (summed * pieces.count);
    const auto split = part / pieces.count + offset, piece = part % pieces.count;
    auto* state = static_cast<char*>(parts.data_ptr()) + number_bytes_ * (head * parts.stride(0) + part * parts.stride(1));
    const auto begin = splits.begin(split), end = splits.end(split);
    add(heads_.head(head), std::min(end, begin + pieces.begin(piece)), std::min(end, begin + pieces.end(piece)), state,
        vector_of(state), scratch_.for_this_thread());
  });
  const auto sums =
      total(parts.view({heads_.count() * summed, pieces.count, state_size_})).view({heads_.count(), summed, state_size_});
  const auto state = [&](int64_t split) { return states.narrow(1, split, 1); };
  for (int64_t i = 0; i < summed; ++i) {
    if (backwards) state(summed - 1 - i).copy_(total(at::cat({state(summed - i), sums.narrow(1, summed - 1 - i, 1)}, 1)));
    else state(i + 1).copy_(total(at::cat({state(i), sums.narrow(1, i, 1)}, 1)));
  }
  return states;
}

Tensor LinearThreads::total(const Tensor& states) const {
  if (!heads_.scales()) return states.sum(1, /*keepdim=*/true);
  const auto scales = states.narrow(2, scale_offset(), 1);
  const auto largest = scales.amax(1, /*keepdim=*/true);
  auto sum = (states * (scales - largest).exp()).sum(1, /*keepdim=*/true);
  sum.narrow(2, scale_offset(), 1).copy_(largest);
  return sum;
}

Tensor LinearThreads::zeros(int64_t count) const {
  auto states = at::zeros({heads_.count(), count, state_size_}, heads_.accumulator());
  if (heads_.scales()) states.narrow(2, scale_offset(), 1).fill_(kNoScale);
  return states;
}

void* LinearThreads::vector_of(void* state) const {
  return static_cast<char*>(state) + number_bytes_ * heads_.padded_features() * heads_.padded_values();
}

void LinearThreads::for_each_task(int64_t count, const std::function<void(int64_t task)>& work) const {
  if (heads_.count() == 0) return;
  at::parallel_for(0, count, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) work(task);
  });
}

}  // namespace attn::cpu
