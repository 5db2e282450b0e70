// Tests of the cache of memory blocks between calls.
#include "harness/worker/cpu/block_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "harness/worker/cpu/memory.h"

namespace attnbench {
namespace {

constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;

at::Tensor bytes(int64_t count) { return at::empty({count}, at::kByte); }

TEST(BlockCache, HandsOutACachedBlockOfTheSameSize) {
  const BlockCache cache(64 * kMiB);
  auto first = bytes(8 * kMiB);
  const auto* const address = first.data_ptr();
  EXPECT_EQ(cache.cached_bytes(), 0);
  first.reset();
  EXPECT_EQ(cache.cached_bytes(), 8 * kMiB);
  const auto other_size = bytes(9 * kMiB);
  EXPECT_NE(other_size.data_ptr(), address);
  const auto again = bytes(8 * kMiB);
  EXPECT_EQ(again.data_ptr(), address);
  EXPECT_EQ(cache.cached_bytes(), 0);
}

// A method that computes the whole prefix in each decoding step has scores that grow by a row and a column.
TEST(BlockCache, ServesTensorsThatGrowFromOneCallToTheNext) {
  const BlockCache cache(64 * kMiB);
  const auto* const first = bytes(8 * 1025 * 1025).data_ptr();
  for (int64_t length = 1026; length < 1034; ++length) EXPECT_EQ(bytes(8 * length * length).data_ptr(), first) << length;
  EXPECT_LE(cache.cached_bytes(), 9 * kMiB);
}

TEST(BlockCache, CachesNoMoreThanItsLimit) {
  const BlockCache cache(10 * kMiB);
  { const auto a = bytes(6 * kMiB), b = bytes(6 * kMiB); }
  EXPECT_EQ(cache.cached_bytes(), 6 * kMiB);
}

TEST(BlockCache, FreesTheLargestBlocksForANewOneBeyondItsLimit) {
  const BlockCache cache(20 * kMiB);
  { const auto a = bytes(4 * kMiB), b = bytes(8 * kMiB), c = bytes(6 * kMiB); }
  EXPECT_EQ(cache.cached_bytes(), 18 * kMiB);
  const auto fits = bytes(2 * kMiB);
  EXPECT_EQ(cache.cached_bytes(), 18 * kMiB);
  const auto beyond = bytes(5 * kMiB);
  EXPECT_EQ(cache.cached_bytes(), 10 * kMiB);
}

TEST(BlockCache, KeepsTheBlocksOfACallThatNeedsMostOfItsLimit) {
  const BlockCache cache(20 * kMiB);
  const auto call = [] {
    const auto a = bytes(9 * kMiB), b = bytes(10 * kMiB);
    return std::pair{a.data_ptr(), b.data_ptr()};
  };
  const auto first = call();
  EXPECT_EQ(call(), first);
  EXPECT_EQ(cache.cached_bytes(), 19 * kMiB);
}

TEST(BlockCache, CachesNothingWhenItsLimitIsZero) {
  const BlockCache cache(0);
  bytes(6 * kMiB);
  EXPECT_EQ(cache.cached_bytes(), 0);
}

TEST(BlockCache, SmallBlocksAreNotCached) {
  const BlockCache cache(10 * kMiB);
  bytes(1000);
  EXPECT_EQ(cache.cached_bytes(), 0);
}

TEST(BlockCache, FreesItsBlocksWhenItIsDestroyed) {
  {
    const BlockCache cache(64 * kMiB);
    bytes(8 * kMiB);
    EXPECT_EQ(cache.cached_bytes(), 8 * kMiB);
  }
  const BlockCache cache(64 * kMiB);
  EXPECT_EQ(cache.cached_bytes(), 0);
}

TEST(BlockCache, TensorsStayValidWhenItIsDestroyed) {
  at::Tensor tensor;
  {
    const BlockCache cache(64 * kMiB);
    tensor = bytes(8 * kMiB);
  }
  tensor.fill_(7);
  EXPECT_EQ(tensor[8 * kMiB - 1].item<int>(), 7);
  tensor.reset();
  const BlockCache cache(64 * kMiB);
  EXPECT_EQ(cache.cached_bytes(), 0);
}

TEST(BlockCache, CanBeUsedByThreadsAtTheSameTime) {
  const BlockCache cache(1024 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) {
        const auto size = kMiB + i % 3;
        const auto tensor = at::full({size}, t, at::kByte);
        ASSERT_EQ(tensor[size - 1].item<int>(), t);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_LE(cache.cached_bytes(), 4 * 3 * (kMiB + 2)) << "at most one block of each size for each thread";
}

// Cached blocks count towards a bound on the memory of the process. An allocation that would succeed without them must not fail.
TEST(BlockCache, FreesItsBlocksBeforeAnAllocationFails) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer has an allocator and a memory map of its own";
#endif
  // The blocks are larger than any memory that earlier tests of this process can have left free in its heap, since the bound
  // does not count such memory a second time. They are hardly written, and therefore take next to no memory.
  const auto child = fork();
  if (child == 0) {
    const MemoryBound bound(5 * kGiB);
    const BlockCache cache(16 * kGiB);
    bytes(3 * kGiB);
    if (cache.cached_bytes() != 3 * kGiB) _exit(1);
    auto larger = bytes(4 * kGiB);
    std::memset(larger.data_ptr(), 1, size_t(kMiB));
    _exit(cache.cached_bytes() == 0 ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace attnbench
