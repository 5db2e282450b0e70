// Tests of counting the memory that tensors take, of bounding it, and of reading the resident set.
#include "harness/worker/cpu/memory.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <thread>

#include "tests/support/errors_of.h"

#if defined(__SANITIZE_ADDRESS__)
#define SKIP_UNDER_ADDRESS_SANITIZER() GTEST_SKIP() << "the sanitizer has an allocator and a memory map of its own"
#else
#define SKIP_UNDER_ADDRESS_SANITIZER()
#endif

namespace attnbench {
namespace {

at::Tensor floats(int64_t count) { return at::empty({count}, at::kFloat); }

TEST(AllocationCounter, CountsEveryByteOfEveryTensor) {
  const AllocationCounter counter;
  EXPECT_EQ(counter.current_bytes(), 0);
  EXPECT_EQ(counter.peak_bytes(), 0);
  EXPECT_EQ(counter.largest_bytes(), 0);
  auto first = floats(1000);
  EXPECT_EQ(counter.current_bytes(), 4000);
  auto second = floats(2500);
  EXPECT_EQ(counter.current_bytes(), 14000);
  EXPECT_EQ(counter.largest_bytes(), 10000);
  first.reset();
  EXPECT_EQ(counter.current_bytes(), 10000);
  EXPECT_EQ(counter.peak_bytes(), 14000);
  auto third = at::zeros({500}, at::kDouble);
  EXPECT_EQ(counter.current_bytes(), 14000);
  EXPECT_EQ(counter.peak_bytes(), 14000);
  auto view = second.view({50, 50}).transpose(0, 1);
  EXPECT_EQ(counter.current_bytes(), 14000) << "a view takes no memory";
  second.reset();
  EXPECT_EQ(counter.current_bytes(), 14000) << "the view keeps the memory in use";
  view.reset();
  third.reset();
  EXPECT_EQ(counter.current_bytes(), 0);
  EXPECT_EQ(counter.peak_bytes(), 14000);
  EXPECT_EQ(counter.largest_bytes(), 10000);
}

TEST(AllocationCounter, ForgetPeakSetsThePeakToWhatIsInUse) {
  AllocationCounter counter;
  const auto large = floats(1000);
  const auto small = floats(100);
  floats(5000);
  EXPECT_EQ(counter.peak_bytes(), 24400);
  counter.reset_peak();
  EXPECT_EQ(counter.current_bytes(), 4400);
  EXPECT_EQ(counter.peak_bytes(), 4400);
  EXPECT_EQ(counter.largest_bytes(), 4000);
  floats(2000);
  EXPECT_EQ(counter.peak_bytes(), 12400);
  EXPECT_EQ(counter.largest_bytes(), 8000);
}

TEST(AllocationCounter, EachCounterBeginsAtZero) {
  {
    const AllocationCounter counter;
    floats(1000);
    EXPECT_EQ(counter.peak_bytes(), 4000);
  }
  const AllocationCounter counter;
  EXPECT_EQ(counter.current_bytes(), 0);
  EXPECT_EQ(counter.peak_bytes(), 0);
  EXPECT_EQ(counter.largest_bytes(), 0);
}

TEST(AllocationCounter, RestoresTheDefaultAllocator) {
  const auto* const before = c10::GetCPUAllocator();
  at::Tensor survivor;
  {
    const AllocationCounter counter;
    EXPECT_NE(c10::GetCPUAllocator(), before);
    survivor = at::full({1000}, 3.f);
  }
  EXPECT_EQ(c10::GetCPUAllocator(), before);
  EXPECT_EQ(survivor.sum().item<float>(), 3000);
  survivor.reset();
  EXPECT_EQ(floats(10).numel(), 10);
}

// A counter counts what was allocated since it was made. Freeing older memory, counted by an earlier counter or not, does not
// change the count.
TEST(AllocationCounter, FreeingOlderTensorsDoesNotChangeTheCount) {
  auto before_any = floats(1000);
  std::optional<AllocationCounter> counter(std::in_place);
  auto under_first = floats(2000);
  before_any.reset();
  EXPECT_EQ(counter->current_bytes(), 8000);
  counter.reset();
  counter.emplace();
  auto under_second = floats(500);
  under_first.reset();
  EXPECT_EQ(counter->current_bytes(), 2000);
  EXPECT_EQ(counter->peak_bytes(), 2000);
  auto more = floats(500);
  EXPECT_EQ(counter->peak_bytes(), 4000);
}

// oneDNN and the fused attention kernels allocate their scratch memory by raw_allocate(). If that failed, they would fail too, or
// take another code path than the one that was timed.
TEST(AllocationCounter, CountsRawAllocations) {
  const AllocationCounter counter;
  auto* const allocator = c10::GetCPUAllocator();
  void* data = nullptr;
  ASSERT_NO_THROW(data = allocator->raw_allocate(5000));
  EXPECT_EQ(counter.current_bytes(), 5000);
  EXPECT_EQ(counter.largest_bytes(), 5000);
  ASSERT_NE(allocator->raw_deleter(), nullptr);
  allocator->raw_deallocate(data);
  EXPECT_EQ(counter.current_bytes(), 0);
}

// Libraries may free, by the address alone, memory that they allocated before the counter was made, or free memory after the
// counter was destroyed. The test does so in child processes, because a wrong free ends the process.
TEST(AllocationCounter, RawBlocksMayBeOlderThanItOrOutliveIt) {
  const auto ends_well = [](void (*work)()) {
    const auto child = fork();
    if (child == 0) {
      work();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  EXPECT_TRUE(ends_well([] {
    void* const older = c10::GetCPUAllocator()->raw_allocate(5000);
    const AllocationCounter counter;
    c10::GetCPUAllocator()->raw_deallocate(older);
  }));
  EXPECT_TRUE(ends_well([] {
    std::optional<AllocationCounter> counter(std::in_place);
    void* const survivor = c10::GetCPUAllocator()->raw_allocate(5000);
    counter.reset();
    c10::GetCPUAllocator()->raw_deallocate(survivor);
  }));
}

TEST(AllocationCounter, ThreadsCountTogether) {
  const AllocationCounter counter;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 1000; ++i) floats(100);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counter.current_bytes(), 0);
  EXPECT_GE(counter.peak_bytes(), 400);
  EXPECT_LE(counter.peak_bytes(), 1600);
  EXPECT_EQ(counter.largest_bytes(), 400);
}

TEST(MemoryBound, RefusesAnAllocationBeyondItAndNamesItsBytes) {
  SKIP_UNDER_ADDRESS_SANITIZER();
  {
    const MemoryBound bound(64 << 20);
    EXPECT_NO_THROW(at::zeros({1 << 20}, at::kFloat));
    const auto message = message_of<c10::Error>([] { floats(int64_t{1} << 28); });
    EXPECT_CONTAINS(message, "1073741824 bytes");
    EXPECT_CONTAINS(message, "can't allocate memory");
    EXPECT_NO_THROW(at::zeros({1 << 20}, at::kFloat)) << "after a refusal, a tensor that fits can still be allocated";
  }
  EXPECT_NO_THROW(floats(int64_t{1} << 28)) << "the bound must be removed";
}

TEST(MemoryBound, CanBeNested) {
  SKIP_UNDER_ADDRESS_SANITIZER();
  // The refused tensors are larger than the memory that earlier tests can have left free in this process's heap.
  const MemoryBound outer(4 * kGiB);
  {
    const MemoryBound inner(20 << 20);
    EXPECT_THROW(floats(kGiB / 2), c10::Error) << "2 GiB";
  }
  EXPECT_NO_THROW(floats(kGiB / 2)) << "2 GiB";
  EXPECT_THROW(floats(2 * kGiB), c10::Error) << "8 GiB";
}

TEST(MemoryBound, ANegativeBoundRefusesAllocationsUntilItsEnd) {
  SKIP_UNDER_ADDRESS_SANITIZER();
  {
    const MemoryBound bound(-5);
    EXPECT_THROW(floats(int64_t{1} << 28), c10::Error) << "more than earlier tests can have left free in this process's heap";
  }
  EXPECT_NO_THROW(floats(int64_t{1} << 28));
}

TEST(ResidentBytes, ItsPeakCanBeReset) {
  const auto before = resident_bytes();
  ASSERT_GT(before, 1 << 20);
  {
    const auto large = at::ones({64 << 20}, at::kFloat);
    EXPECT_GT(resident_bytes(), before + (200 << 20));
  }
  EXPECT_GE(peak_resident_bytes(), before + (200 << 20));
  if (!reset_peak_resident_bytes()) GTEST_SKIP() << "this system does not reset the peak";
  SKIP_UNDER_ADDRESS_SANITIZER();  // the sanitizer does not return freed memory at once
  EXPECT_LT(peak_resident_bytes(), before + (100 << 20));
  { const auto large = at::ones({32 << 20}, at::kFloat); }
  EXPECT_GE(peak_resident_bytes(), before + (100 << 20));
}

}  // namespace
}  // namespace attnbench
