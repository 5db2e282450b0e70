// What the contract of every method does not ask of the CUDA kernels: every dimension they are compiled for, lengths around their
// chunks, numbers of splits, orders of threads, buckets that are exactly float64's.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "attn/kernels/lsh.h"
#include "attn/lsh_attention.h"
#include "tests/emulation/cuda.h"
#include "tests/method_helpers.h"

namespace attn::cuda {
namespace {

// Forward and backward beside the reference, or nothing where the method rightly refuses.
void check(const std::string& spec, at::ScalarType dtype, const Shape& shape, Masking masking, int64_t batch = 2,
           int64_t heads = 2) {
  SCOPED_TRACE(spec + " " + dtype_name(dtype) + " " + text_of(shape) + " " + name_of(masking));
  const auto method = make_method(spec);
  const auto problem = problem_of(shape, dtype, masking, batch, heads);
  if (method->why_unsupported(problem, Protocol::forward_backward)) return;
  const auto inputs = inputs_of(problem, Protocol::forward_backward);
  const auto results = call(*method, inputs, Protocol::forward_backward);
  EXPECT_TRUE(method->implementation().starts_with("kernel/cuda")) << method->implementation();
  const auto agreement = compare(*method, inputs, results, Protocol::forward_backward, Selection::everything(problem));
  EXPECT_TRUE(agreement.within(method->error_tolerance(dtype))) << agreement.worst << ": " << agreement.max_rel_error;
}

class EmulatedKernels : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cuda, EmulatedKernels,
                         testing::Values("linear:kernel=cuda", "linear:kernel=cuda-tf32", "linear:kernel=cuda-plain",
                                         "lsh:rounds=2,chunk=64,buckets=4,kernel=cuda"),
                         [](const auto& tested) { return identifier(tested.param); });

TEST_P(EmulatedKernels, EveryDimension) {
  for (const auto dtype : kDtypes)
    for (const auto& shape : {Shape{70, 70, 32, 32}, Shape{130, 130, 64, 64}, Shape{70, 70, 128, 128}, Shape{70, 70, 8, 24},
                              Shape{70, 70, 64, 16}, Shape{70, 70, 40, 96}})
      check(GetParam(), dtype, shape, Masking::causal_and_key_lengths, 2, 1);
}

TEST_P(EmulatedKernels, LengthsThatEndAnywhere) {
  for (const auto dtype : kDtypes)
    for (const int64_t length : {1, 15, 16, 17, 63, 64, 65, 129}) {
      check(GetParam(), dtype, {length, length, 16, 16}, Masking::causal, 1, 1);
      check(GetParam(), dtype, {length, 70, 16, 16}, Masking::none, 1, 1);
    }
}

TEST_P(EmulatedKernels, EveryNumberOfSplits) {
  if (GetParam().starts_with("lsh")) return;  // knows none
  for (const int64_t multiprocessors : {1, 2, 3, 5, 100}) {
    SCOPED_TRACE("multiprocessors " + std::to_string(multiprocessors));
    emulation::set_multiprocessors(multiprocessors);
    for (const auto masking : kMaskings) check(GetParam(), at::kFloat, {330, 330, 16, 16}, masking);
  }
  emulation::set_multiprocessors(2);
}

TEST_P(EmulatedKernels, EveryOrderOfThreads) {
  for (const auto order : {emulation::ThreadOrder::backward, emulation::ThreadOrder::shuffled}) {
    emulation::set_thread_order(order, 5);
    for (const auto dtype : kDtypes) {
      check(GetParam(), dtype, {150, 150, 32, 32}, Masking::causal_and_key_lengths);
      check(GetParam(), dtype, {150, 90, 32, 32}, Masking::none);
    }
  }
  emulation::set_thread_order(emulation::ThreadOrder::forward);
}

TEST(EmulatedLinear, EveryMap) {
  for (const auto* spec : {"linear:kernel=cuda", "linear-elu0.1:kernel=cuda", "linear-elu0.1:kernel=cuda-plain"})
    for (const auto dtype : kDtypes) check(spec, dtype, {100, 100, 16, 32}, Masking::causal);
}

TEST(EmulatedLsh, BucketsAreThoseOfFloat64) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto qk = inputs_of(problem_of({1000, 1000, 8, 8}, dtype, Masking::none), Protocol::forward).q;
    const auto rotations = draw_rotations(8, 2, 64, 5, at::kCPU);
    const auto* kernel = kernels::find_lsh({"cuda", dtype, at::kCPU, 8, 8});
    const auto order = std::get<2>(kernel->forward(qk, qk, rotations, 64, false, {}, true, {}));
    EXPECT_TRUE(at::equal(order, at::argsort(lsh_buckets(qk, rotations, {}), /*stable=*/true, /*dim=*/3))) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace attn::cuda
