// Tests of the emulation itself: it provides the functions that CUDA kernels use, and detects missing barriers and deadlocks.
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

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

// Multiplies a [16,K] and b [K,8] twice, once stored by rows and once by columns, and compares the results with a plain product.
template <class E, Precision kPrecision>
void check_product(double tolerance) {
  using F = Fragments<E, kPrecision>;
  constexpr int kDepth = F::kDepth;
  std::vector<E> a(16 * kDepth), b(kDepth * 8), a_turned(a.size()), b_turned(b.size());
  for (int r = 0; r < 16; ++r)
    for (int k = 0; k < kDepth; ++k)
      a[size_t(r * kDepth + k)] = a_turned[size_t(k * 16 + r)] = from_float<E>(std::sin(float(r * 31 + k * 7)));
  for (int k = 0; k < kDepth; ++k)
    for (int c = 0; c < 8; ++c)
      b[size_t(k * 8 + c)] = b_turned[size_t(c * kDepth + k)] = from_float<E>(std::cos(float(k * 13 + c * 5)));
  for (const auto order : kOrders) {
    set_thread_order(order, 2);
    for (const bool turned : {false, true}) {
      std::vector<float> d(16 * 8, -1);
      run_grid(1, 32, 0, [&] {
        Accumulator sum;
        const auto of_a = turned ? F::load_a(a_turned.data(), 1, 16) : F::load_a(a.data(), kDepth, 1);
        const auto of_b = turned ? F::load_b(b_turned.data(), 1, kDepth) : F::load_b(b.data(), 8, 1);
        F::multiply_add(sum, of_a, of_b);
        F::multiply_add(sum, of_a, of_b);
        for (int i = 0; i < 4; ++i) d[size_t(Accumulator::row(i) * 8 + Accumulator::column(i))] = sum.x[i];
      });
      for (int r = 0; r < 16; ++r)
        for (int c = 0; c < 8; ++c) {
          double exact = 0;
          for (int k = 0; k < kDepth; ++k)
            exact += 2 * double(to_float(a[size_t(r * kDepth + k)])) * double(to_float(b[size_t(k * 8 + c)]));
          EXPECT_NEAR(d[size_t(r * 8 + c)], exact, tolerance) << r << " " << c;
        }
    }
  }
}
TEST(MatrixFragments, MultiplyAgreesWithAPlainProduct) {
  check_product<BFloat16, Precision::half_precision>(1e-5);
  check_product<Half, Precision::half_precision>(1e-5);
  check_product<float, Precision::tf32>(1e-2);
  check_product<float, Precision::tf32_three>(1e-5);
}

}  // namespace
}  // namespace attn::cuda
