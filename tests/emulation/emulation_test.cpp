// Tests of the emulation itself: it provides the functions that CUDA kernels use, and detects missing barriers and deadlocks.
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "attn/cuda/launch.cuh"
#include "attn/cuda/mma.h"

namespace attn::cuda {
namespace {

using emulation::run_grid;
using emulation::set_thread_order;
using emulation::ThreadOrder;

constexpr ThreadOrder kOrders[] = {ThreadOrder::forward, ThreadOrder::backward, ThreadOrder::shuffled};

TEST(CudaEmulation, EveryThreadOfEveryBlockRunsOnce) {
  for (const auto order : kOrders) {
    set_thread_order(order);
    std::vector<int> seen(2 * 3 * 40);
    run_grid(dim3(2, 3), dim3(8, 5), 0, [&] {
      ++seen[size_t(threadIdx.x + 8 * (threadIdx.y + 5 * (blockIdx.x + 2 * blockIdx.y)))];
      EXPECT_EQ(blockDim.y, 5U);
      EXPECT_EQ(gridDim.x, 2U);
    });
    EXPECT_EQ(seen, std::vector<int>(240, 1));
  }
}

TEST(CudaEmulation, BarriersOrderSharedMemory) {
  for (const auto order : kOrders) {
    set_thread_order(order, 7);
    std::vector<int> sums(4);
    run_grid(4, 96, 96 * sizeof(int), [&] {
      auto* shared = reinterpret_cast<int*>(shared_memory());
      for (int round = 0; round < 3; ++round) {
        shared[threadIdx.x] = int(threadIdx.x) + round;
        __syncthreads();
        if (threadIdx.x == 0)
          for (int i = 0; i < 96; ++i) sums[blockIdx.x] += shared[i];
        __syncthreads();
      }
    });
    EXPECT_EQ(sums, std::vector<int>(4, 3 * 96 * 95 / 2 + 3 * 96));
  }
}

TEST(CudaEmulation, AMissingBarrierGivesWrongResultsInSomeOrder) {
  bool right = true;
  for (const auto order : kOrders) {
    set_thread_order(order, 3);
    std::vector<int> result(64);
    run_grid(1, 64, 64 * sizeof(int), [&] {
      auto* shared = reinterpret_cast<int*>(shared_memory());
      shared[threadIdx.x] = int(threadIdx.x);
      result[threadIdx.x] = shared[63 - threadIdx.x];
    });
    for (int i = 0; i < 64; ++i) right = right && result[size_t(i)] == 63 - i;
  }
  EXPECT_FALSE(right);
}

TEST(CudaEmulation, ABarrierThatSomeNeverReachIsADeadlock) {
  set_thread_order(ThreadOrder::forward);
  try {
    run_grid(1, 64, 0, [] {
      if (threadIdx.x < 40) __syncthreads();
      else __syncwarp(1u << (threadIdx.x % 32) | 1u);
    });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("40 threads wait at __syncthreads, 24 in a warp's exchange"), std::string::npos)
        << error.what();
  }
}

TEST(CudaEmulation, ShufflesAndVotes) {
  for (const auto order : kOrders) {
    set_thread_order(order, 1);
    run_grid(1, 64, 0, [] {
      const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
      EXPECT_EQ(sum_over_lanes(lane), 496);
      EXPECT_EQ(max_over_lanes(float(lane)), 31);
      EXPECT_EQ(__shfl_sync(kAllLanes, lane + 100 * warp, 5), 5 + 100 * warp);
      EXPECT_EQ(__shfl_up_sync(kAllLanes, lane, 1), lane == 0 ? 0 : lane - 1);
      EXPECT_EQ(__shfl_down_sync(kAllLanes, lane, 1, 8), lane % 8 == 7 ? lane : lane + 1);
      EXPECT_EQ(__ballot_sync(kAllLanes, lane < 4), 15U);
      EXPECT_TRUE(__any_sync(kAllLanes, lane == 3));
      EXPECT_FALSE(__all_sync(kAllLanes, lane == 3));
    });
  }
}

// Expects a launch to end with an error that contains `expected`.
template <class Run>
void expect_refusal(const std::string& expected, const Run& run) {
  try {
    run();
    ADD_FAILURE() << "nothing was thrown; expected: " << expected;
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what() << "\nexpected: " << expected;
  }
}

TEST(CudaEmulation, RefusesGridsAndBlocksBeyondTheLimits) {
  const auto nothing = [] {};
  expect_refusal("65536 blocks in y, expected 1 to 65535", [&] { run_grid(dim3(1, 65536), 1, 0, nothing); });
  expect_refusal("65536 blocks in z, expected 1 to 65535", [&] { run_grid(dim3(1, 1, 65536), 1, 0, nothing); });
  expect_refusal("2147483648 blocks in x, expected 1 to 2147483647", [&] { run_grid(0x80000000U, 1, 0, nothing); });
  expect_refusal("0 blocks in x", [&] { run_grid(0, 1, 0, nothing); });
  expect_refusal("1056 threads in a block, expected 1 to 1024", [&] { run_grid(1, dim3(33, 32), 0, nothing); });
  expect_refusal("65 threads in z", [&] { run_grid(1, dim3(1, 1, 65), 0, nothing); });
  EXPECT_THROW(StreamLauncher(nullptr)(
                   +[] {}, int64_t{1} << 31, 1, 0),
               c10::Error);
}

TEST(CudaEmulation, RefusesMoreSharedMemoryThanTheArchitectureHas) {
  struct Limit {
    int architecture;
    size_t kib;
  };
  void (*kernel)() = [] {};
  for (const auto& [architecture, kib] : {Limit{80, 163}, {86, 99}, {89, 99}, {90, 227}, {120, 99}}) {
    emulation::set_architecture(architecture);
    const auto most = kib << 10;
    const auto launch = [&](size_t bytes) { emulation::launch(kernel, 1, 32, bytes, /*begins_early=*/false); };
    launch(48 << 10);
    expect_refusal("more than cudaFuncSetAttribute has allowed", [&] { launch((48 << 10) + 1); });
    expect_refusal("more than the " + std::to_string(most) + " that the emulated sm_" + std::to_string(architecture),
                   [&] { launch(most + 1); });
    expect_refusal("more than the " + std::to_string(most), [&] {
      static_cast<void>(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(most + 1)));
    });
    static_cast<void>(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(most)));
    launch(most);
    StreamLauncher(nullptr)(kernel, 1, 32, most);
  }
  emulation::set_architecture(90);
  expect_refusal("does not know sm_70", [] { emulation::set_architecture(70); });
}

TEST(CudaEmulation, RefusesExchangesWithLanesThatDoNotTakePart) {
  set_thread_order(ThreadOrder::forward);
  expect_refusal("lane 0 shuffles from lane 5, which is not in the mask", [] {
    run_grid(1, 32, 0, [] {
      if (lane() < 4) __shfl_sync(15U, 1, 5);
    });
  });
  expect_refusal("lane 0 shuffles from lane 30, which is not in the mask or does not exist",
                 [] { run_grid(1, 20, 0, [] { __shfl_sync(kAllLanes, 1, 30); }); });
  expect_refusal("mask that does not contain the lane itself", [] { run_grid(1, 32, 0, [] { __syncwarp(1); }); });
  expect_refusal("take part in different exchanges", [] {
    run_grid(1, 32, 0, [] {
      if (lane() == 3) __syncwarp();
      else __shfl_sync(kAllLanes, 1, 0);
    });
  });
  expect_refusal("or with different masks", [] { run_grid(1, 32, 0, [] { __syncwarp(lane() == 3 ? 15 : kAllLanes); }); });
  // Lane 9 has ended.
  expect_refusal("deadlock", [] {
    run_grid(1, 32, 0, [] {
      if (lane() != 9) __shfl_sync(kAllLanes, 1, 9);
    });
  });
}

TEST(CudaEmulation, RefusesDifferentBarriersAtATime) {
  set_thread_order(ThreadOrder::forward);
  expect_refusal("wait at different barriers", [] {
    run_grid(1, 64, 0, [] {
      if (threadIdx.x < 32) __syncthreads();
      else __syncthreads();
    });
  });
}

TEST(CudaEmulation, RefusesAsynchronousCopiesThatAreNotAligned) {
  set_thread_order(ThreadOrder::forward);
  alignas(16) const float from[8] = {};
  const auto copy = [&](int to_offset, int from_offset) {
    run_grid(1, 1, 64, [&] { copy_async(shared_memory() + to_offset, from + from_offset, true); });
  };
  copy(16, 4);
  expect_refusal("16 bytes has an address that is not a multiple", [&] { copy(8, 4); });
  expect_refusal("16 bytes has an address that is not a multiple", [&] { copy(16, 1); });
  expect_refusal("outside of the block's shared memory", [&] { copy(64, 0); });
}

TEST(CudaEmulation, AsynchronousCopiesAreMadeWhenWaitedForAndNotBefore) {
  set_thread_order(ThreadOrder::forward);
  const std::vector<float> from{1, 2, 3, 4, 5, 6, 7, 8};
  run_grid(1, 1, 48, [&] {
    auto* to = reinterpret_cast<float*>(shared_memory());
    copy_async(to, from.data(), true), end_copy_group();
    copy_async(to + 4, from.data() + 4, true), copy_async(to + 8, from.data(), false), end_copy_group();
    EXPECT_NE(to[0], 1);
    wait_for_copies<1>();
    EXPECT_EQ(to[3], 4);
    EXPECT_NE(to[4], 5);
    wait_for_copies<0>();
    EXPECT_EQ(to[7], 8);
    EXPECT_EQ(to[8], 0);
  });
}

template <class E>
void round_trip(float x, float expected) {
  EXPECT_EQ(to_float(from_float<E>(x)), expected) << x;
}
TEST(CudaEmulation, ElementsRoundToNearestEven) {
  round_trip<BFloat16>(1 + 1 / 256.0f, 1);
  round_trip<BFloat16>(1 + 3 / 256.0f, 1 + 4 / 256.0f);
  round_trip<BFloat16>(-INFINITY, -INFINITY);
  round_trip<Half>(1 + 1 / 2048.0f, 1);
  round_trip<Half>(65504, 65504);
  round_trip<Half>(1e6f, INFINITY);
  EXPECT_TRUE(std::isnan(to_float(from_float<BFloat16>(NAN))));
  EXPECT_TRUE(std::isnan(to_float(from_float<Half>(NAN))));
}

// Multiplies a [16,K] and b [K,16] twice, with all ways to load them, and compares the results with a plain product.
template <class E, Precision kPrecision>
void check_product(double tolerance) {
  using F = Fragments<E, kPrecision>;
  constexpr int kDepth = F::kDepth;
  std::vector<E> a(16 * kDepth), b(kDepth * 16), a_turned(a.size()), b_turned(b.size());
  const auto rounded = [](float x) { return from_float<E>(F::round_to_tile(x)); };
  for (int r = 0; r < 16; ++r)
    for (int k = 0; k < kDepth; ++k)
      a[size_t(r * kDepth + k)] = a_turned[size_t(k * 16 + r)] = rounded(std::sin(float(r * 31 + k * 7)));
  for (int k = 0; k < kDepth; ++k)
    for (int c = 0; c < 16; ++c)
      b[size_t(k * 16 + c)] = b_turned[size_t(c * kDepth + k)] = rounded(std::cos(float(k * 13 + c * 5)));
  enum class Way { rows, columns, rows_and_columns };
  for (const auto order : kOrders) {
    set_thread_order(order, 2);
    for (const auto way : {Way::rows, Way::columns, Way::rows_and_columns}) {
      std::vector<float> d(16 * 16, -1);
      run_grid(1, 32, 0, [&] {
        Accumulator sums[2];
        const auto of_a = way == Way::rows      ? F::load_a_of_rows(a.data(), kDepth)
                          : way == Way::columns ? F::load_a_of_columns(a_turned.data(), 16)
                                                : F::load_a_of_rows_for_columns(a.data(), kDepth);
        typename F::B of_b[2];
        if (way == Way::rows) F::load_b_of_rows(of_b, b_turned.data(), kDepth);
        else F::load_b_of_columns(of_b, b.data(), 16);
        for (int t = 0; t < 2; ++t) {
          F::multiply_add(sums[t], of_a, of_b[t]);
          F::multiply_add(sums[t], of_a, of_b[t]);
          for (int i = 0; i < 4; ++i) d[size_t(Accumulator::row(i) * 16 + t * 8 + Accumulator::column(i))] = sums[t].x[i];
        }
      });
      for (int r = 0; r < 16; ++r)
        for (int c = 0; c < 16; ++c) {
          double exact = 0;
          for (int k = 0; k < kDepth; ++k)
            exact += 2 * double(to_float(a[size_t(r * kDepth + k)])) * double(to_float(b[size_t(k * 16 + c)]));
          EXPECT_NEAR(d[size_t(r * 16 + c)], exact, tolerance) << r << " " << c;
        }
    }
  }
}
TEST(MatrixFragments, MultiplyAgreesWithAPlainProduct) {
  check_product<BFloat16, Precision::half_precision>(1e-5);
  check_product<Half, Precision::half_precision>(1e-5);
  check_product<float, Precision::tf32>(1e-5);  // the numbers are rounded before
  check_product<float, Precision::tf32_three>(1e-5);
}

TEST(MatrixFragments, StoresOfSixteenBitsAreReadBackAsTheyWere) {
  constexpr int kStride = 24;
  std::vector<BFloat16> tile(16 * kStride);
  run_grid(1, 32, 0, [&] {
    Accumulator left, right;
    for (int i = 0; i < 4; ++i) {
      const int at = Accumulator::row(i) * 16 + Accumulator::column(i);
      left.x[i] = float(at);
      right.x[i] = float(at + 8);
    }
    store_pairs(left, right, tile.data(), kStride);
  });
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 16; ++c) EXPECT_EQ(to_float(tile[size_t(r * kStride + c)]), float(r * 16 + c)) << r << " " << c;
}

// The pairs are of numbers, zeros and infinities of both signs, and NaN.
TEST(Pairs, AreComputedLikeSingleNumbers) {
  const float numbers[] = {0.0f, -0.0f, 1.0f, -1.5f, 3.25f, -INFINITY, INFINITY, NAN, 1e-30f, -7e20f};
  const auto rounded = [](float x) { return to_float(from_float<BFloat16>(x)); };
  const auto expect = [&](uint32_t pair, float first, float second) {
    const auto same = [](float x, float y) { return std::isnan(x) ? std::isnan(y) : x == y; };
    EXPECT_TRUE(same(rounded(first), first_of_pair<BFloat16>(pair))) << first;
    EXPECT_TRUE(same(rounded(second), second_of_pair<BFloat16>(pair))) << second;
  };
  for (const float x : numbers)
    for (const float y : numbers) {
      const float a = rounded(x), b = rounded(y);
      const uint32_t p = pair_of<BFloat16>(a, b), q = pair_of<BFloat16>(b, a);
      expect(add_pairs(p, q), a + b, b + a);
      expect(subtract_pairs(p, q), a - b, b - a);
      expect(multiply_pairs(p, q), a * b, b * a);
      expect(multiply_add_pairs(p, q, p), std::fma(a, b, a), std::fma(b, a, b));
      expect(min_of_pairs(p, q), min_or_nan(a, b), min_or_nan(b, a));
      expect(max_of_pairs(p, q), max_or_nan(a, b), max_or_nan(b, a));
    }
}

}  // namespace
}  // namespace attn::cuda
