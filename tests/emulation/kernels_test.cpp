// Tests of the CUDA kernels beyond the contract of every method. They cover every dimension that the kernels are compiled for,
// lengths around the chunk size, numbers of splits, and orders of threads, and check that buckets are exactly those of float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <tuple>
#include <vector>

#include "attn/linear/cuda/splits.h"
#include "attn/linear/linear_attention.h"
#include "attn/lsh/implementation.h"
#include "attn/lsh/lsh_attention.h"
#include "harness/worker/cpu/memory.h"
#include "tests/emulation/cuda.h"
#include "tests/support/errors_of.h"
#include "tests/support/method_helpers.h"

namespace attn::cuda {
namespace {

// Compares the forward and the backward pass with the reference. Does nothing if the method does not support the problem.
void check(const std::string& spec, at::ScalarType dtype, const Shape& shape, Masking masking, int64_t batch = 2,
           int64_t heads = 2) {
  SCOPED_TRACE(spec + " " + dtype_name(dtype) + " " + text_of(shape) + " " + name_of(masking));
  const auto method = make_method(spec);
  const auto problem = problem_of(shape, dtype, masking, batch, heads);
  if (method->why_unsupported(problem, Protocol::forward_backward)) return;
  const auto inputs = inputs_of(problem, Protocol::forward_backward);
  const auto results = call(*method, inputs, Protocol::forward_backward);
  EXPECT_TRUE(method->implementation().starts_with("kernel/cuda")) << method->implementation();
  const auto agreement = compare(*method, inputs, results, Selection::everything(problem));
  EXPECT_TRUE(agreement.within(method->error_tolerance(dtype))) << agreement.worst << ": " << agreement.max_rel_error;
}

class EmulatedKernels : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cuda, EmulatedKernels,
                         testing::Values("linear:implementation=cuda", "linear:implementation=cuda-tf32",
                                         "linear:implementation=cuda-plain",
                                         "lsh:rounds=3,chunk=64,buckets=4,implementation=cuda"),
                         [](const auto& tested) { return identifier(tested.param); });

TEST_P(EmulatedKernels, EveryDimension) {
  for (const auto dtype : kDtypes)
    for (const auto& shape : {Shape{70, 70, 32, 32}, Shape{130, 130, 64, 64}, Shape{70, 70, 128, 128}, Shape{70, 70, 8, 24},
                              Shape{70, 70, 64, 16}, Shape{70, 70, 40, 96}})
      check(GetParam(), dtype, shape, Masking::causal_and_key_lengths, 2, 1);
}

TEST_P(EmulatedKernels, LengthsAroundTheChunkSize) {
  for (const auto dtype : kDtypes)
    for (const int64_t length : {1, 15, 16, 17, 63, 64, 65, 129}) {
      check(GetParam(), dtype, {length, length, 16, 16}, Masking::causal, 1, 1);
      check(GetParam(), dtype, {length, 70, 16, 16}, Masking::none, 1, 1);
    }
}

// See LinearGradients in tests/attn/linear.
TEST_P(EmulatedKernels, GradientsDoNotLoseDigitsToTheMeanOfTheValues) {
  if (GetParam().starts_with("lsh") || GetParam() == "linear:implementation=cuda-tf32") return;
  const auto method = make_method(GetParam());
  for (const auto& [dtype, tolerance] : {std::pair{at::kFloat, 1e-5}, {at::kBFloat16, 1e-2}, {at::kHalf, 1e-2}})
    for (const auto masking : kMaskings)
      for (const double mean : {0.0, 3.0, 100.0}) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + name_of(masking) + " mean " + std::to_string(mean));
        auto inputs = inputs_of(problem_of({260, 260, 32, 32}, dtype, masking, 2, 1), Protocol::forward_backward);
        inputs.v = (inputs.v.detach() + mean).set_requires_grad(true);
        const auto results = call(*method, inputs, Protocol::forward_backward);
        EXPECT_LE(error_of_late_rows(results.gradients.q, exact_results(*method, inputs).gradients.q), tolerance);
      }
}

TEST_P(EmulatedKernels, EveryNumberOfSplits) {
  if (GetParam().starts_with("lsh")) return;  // LSH attention has no splits
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

// The shared memory that a block of the emulated GPU can have, until the end of a test.
class SharedMemoryLimit {
 public:
  explicit SharedMemoryLimit(size_t kib) { emulation::set_max_shared_bytes(kib << 10); }
  SharedMemoryLimit(const SharedMemoryLimit&) = delete;
  SharedMemoryLimit& operator=(const SharedMemoryLimit&) = delete;
  ~SharedMemoryLimit() { emulation::set_max_shared_bytes(before_); }

 private:
  size_t before_ = emulation::max_shared_bytes();
};

// Runs a method with implementation=auto, and returns the name of the implementation that ran.
std::string chosen(const std::string& spec, at::ScalarType dtype, int64_t dim, Protocol protocol) {
  const auto method = make_method(spec);
  const auto problem = problem_of({70, 70, dim, dim}, dtype, Masking::causal, 1, 1);
  EXPECT_FALSE(method->why_unsupported(problem, protocol));
  const auto inputs = inputs_of(problem, protocol);
  const auto results = call(*method, inputs, protocol);
  EXPECT_TRUE(compare(*method, inputs, results, Selection::everything(problem)).within(method->error_tolerance(dtype)));
  return method->implementation();
}

TEST(SharedMemory, AutoChoosesKernelsThatFitTheDevice) {
  using enum Protocol;
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int64_t dim : {16, 64, 128})
      for (const size_t kib : {99, 163, 227}) {  // sm_86, sm_80, sm_90
        const SharedMemoryLimit limit(kib);
        for (const auto protocol : {forward, forward_backward}) {
          SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(dim) + " " + std::to_string(kib));
          Problem problem = problem_of({70, 70, dim, dim}, dtype, Masking::causal, 1, 1);
          const auto reason = make_method("linear:implementation=cuda")->why_unsupported(problem, protocol);
          // What does not fit is refused by name, and is computed by the next implementation.
          EXPECT_EQ(chosen("linear", dtype, dim, protocol), reason ? "kernel/cuda-plain" : "kernel/cuda");
          EXPECT_EQ(reason.has_value(), kib == 99 && dim == 128 && (dtype != at::kBFloat16 || protocol == forward_backward));
          EXPECT_EQ(chosen("lsh:chunk=32,buckets=4", dtype, dim, protocol), "kernel/cuda");
        }
      }
}

TEST(SharedMemory, RefusalsSayWhatIsNeededAndWhatRuns) {
  const auto reason = [](const char* spec, int64_t dim, Protocol protocol, at::ScalarType dtype = at::kFloat) {
    const auto problem = problem_of({70, 70, dim, dim}, dtype, Masking::causal, 1, 1);
    return make_method(spec)->why_unsupported(problem, protocol).value_or("");
  };
  {
    const SharedMemoryLimit limit(99);
    EXPECT_CONTAINS(reason("linear:implementation=cuda", 128, Protocol::forward_backward, at::kBFloat16),
                    "linear_attention: implementation 'cuda' needs 104 KiB of shared memory per block in the backward pass, and "
                    "this device has "
                    "99 KiB; use 'cuda-plain' or 'composed'");
    EXPECT_EQ(reason("linear:implementation=cuda", 128, Protocol::forward, at::kBFloat16), "");
    EXPECT_CONTAINS(reason("linear:implementation=cuda-tf32", 128, Protocol::forward),
                    "KiB of shared memory per block in the forward pass");
  }
  const SharedMemoryLimit limit(48);
  EXPECT_CONTAINS(reason("lsh:implementation=cuda", 64, Protocol::forward_backward),
                  "lsh_attention: implementation 'cuda' needs 53 KiB of shared memory per block in the forward pass, and this "
                  "device has 48 KiB; "
                  "use 'composed'");
  EXPECT_EQ(chosen("lsh:chunk=32,buckets=4", at::kFloat, 64, Protocol::forward_backward), "aten/sorted chunks");
  EXPECT_CONTAINS(reason("linear:implementation=cuda-plain", 8192, Protocol::forward), "; use 'composed'");
  EXPECT_EQ(reason("linear", 8192, Protocol::forward), "");
}

// The operator chooses by whether gradients are recorded, and its backward pass as its forward pass.
TEST(SharedMemory, TheOperatorsChooseOneImplementationForBothPasses) {
  const SharedMemoryLimit limit(99);
  auto inputs = inputs_of(problem_of({70, 70, 128, 128}, at::kBFloat16, Masking::causal, 1, 1), Protocol::forward_backward);
  const auto run = [&](const char* implementation) {
    return linear_attention(inputs.q, inputs.k, inputs.v, {.causal = true, .implementation = implementation});
  };
  EXPECT_TRUE(at::equal(run("auto"), run("cuda-plain")));
  EXPECT_CONTAINS(attnbench::message_of<c10::ValueError>([&] { run("cuda"); }), "in the backward pass");
  run("auto").sum().backward();
  const at::NoGradGuard guard;
  EXPECT_TRUE(at::equal(run("auto"), run("cuda")));
  EXPECT_FALSE(at::equal(run("cuda"), run("cuda-plain")));
}

// What the implementations are chosen by is what their launches ask for.
TEST(SharedMemory, LaunchesAskForWhatIsStated) {
  emulation::take_largest_shared_bytes();
  for (const auto* spec :
       {"linear:implementation=cuda", "linear:implementation=cuda-tf32", "lsh:chunk=32,buckets=4,implementation=cuda"})
    for (const auto protocol : {Protocol::forward, Protocol::forward_backward}) {
      const auto method = make_method(spec);
      const auto problem = problem_of({70, 70, 64, 64}, at::kFloat, Masking::causal, 1, 1);
      emulation::take_largest_shared_bytes();
      call(*method, inputs_of(problem, protocol), protocol);
      const auto asked = emulation::take_largest_shared_bytes();
      const auto refused_at = [&](size_t bytes) {
        emulation::set_max_shared_bytes(bytes);
        const auto reason = make_method(spec)->why_unsupported(problem, protocol);
        emulation::set_max_shared_bytes(227 << 10);
        return reason.has_value();
      };
      EXPECT_FALSE(refused_at(asked)) << spec;
      EXPECT_TRUE(refused_at(asked - 1)) << spec;
    }
}

TEST(EmulatedLinear, PredictsTheStatesOfTheDevice) {
  const auto problem = problem_of({4096, 4096, 64, 64}, at::kFloat, Masking::causal, 1, 1);
  const auto peak = [&](int64_t multiprocessors) {
    emulation::set_multiprocessors(multiprocessors);
    return make_method("linear:implementation=cuda")->cost(problem, Protocol::forward).peak_bytes;
  };
  EXPECT_LT(peak(2), peak(8));
  emulation::set_multiprocessors(2);
}

TEST(EmulatedLinear, EveryFeatureMap) {
  for (const auto* spec :
       {"linear:implementation=cuda", "linear-elu0.1:implementation=cuda", "linear-elu0.1:implementation=cuda-plain"})
    for (const auto dtype : kDtypes) check(spec, dtype, {100, 100, 16, 32}, Masking::causal);
}

// Hidden keys and their values are NaN here. Their gradients are zeros, and those of the others are as if there were no hidden
// keys.
TEST(EmulatedLinear, HiddenKeysGetNoGradientWithAnyFeatureMap) {
  constexpr int64_t kLength = 100, kVisible = 37, kDim = 32;
  const at::Tensor exact[] = {at::randn({1, 2, kLength, kDim}, at::kDouble), at::randn({1, 2, kLength, kDim}, at::kDouble),
                              at::randn({1, 2, kLength, kDim}, at::kDouble), at::randn({1, 2, kLength, kDim}, at::kDouble)};
  const auto gradients = [&](const LinearAttentionOptions& options, at::ScalarType dtype, double hidden) {
    std::vector<at::Tensor> qkv;
    for (int i = 0; i < 3; ++i) {
      qkv.push_back(exact[i].to(dtype, /*non_blocking=*/false, /*copy=*/true));
      if (i > 0) qkv.back().narrow(2, kVisible, kLength - kVisible).fill_(hidden);
      qkv.back().set_requires_grad(true);
    }
    linear_attention(qkv[0], qkv[1], qkv[2], options).backward(exact[3].to(dtype));
    return std::vector{qkv[0].grad(), qkv[1].grad(), qkv[2].grad()};
  };
  for (const auto* map : {"elu", "elu0.1", "relu"})
    for (const bool causal : {false, true})
      for (const auto& [dtype, tolerance] : {std::pair{at::kFloat, 1e-5}, {at::kBFloat16, 2e-2}, {at::kHalf, 5e-3}}) {
        SCOPED_TRACE(std::string(map) + (causal ? " causal " : " ") + dtype_name(dtype));
        LinearAttentionOptions options{.causal = causal, .key_lengths = at::tensor({kVisible}), .feature_map = map};
        options.implementation = "composed";
        const auto expected = gradients(options, at::kDouble, 0);
        options.implementation = "cuda";
        const auto found = gradients(options, dtype, NAN);
        for (int i = 0; i < 3; ++i) {
          const auto error = (found[i].to(at::kDouble) - expected[i]).norm() / expected[i].norm();
          EXPECT_LE(error.item<double>(), tolerance) << "gradient " << i;
          if (i == 0) continue;
          EXPECT_TRUE(found[i].narrow(2, kVisible, kLength - kVisible).eq(0).all().item<bool>()) << "gradient " << i;
        }
      }
}

TEST(EmulatedLinear, StepsOfEveryDimension) {
  // These include few columns for one warp, more columns than a block's warps process at once, and more rows than a lane loads at
  // once.
  for (const auto& [head_dim, value_dim] : {std::pair(64, 64), {8, 5}, {130, 24}, {20, 520}})
    for (const auto dtype : kDtypes) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(head_dim) + " " + std::to_string(value_dim));
      const auto method = make_method("linear:implementation=cuda-plain");
      const auto problem = problem_of({5, 5, head_dim, value_dim}, dtype, Masking::causal, 2, 2);
      const auto inputs = make_inputs(problem, Protocol::decode, 1);
      const auto results = decode_from(*method, inputs, 0);
      const auto agreement = compare(*method, inputs, results, Selection::everything(problem));
      EXPECT_TRUE(agreement.within(method->error_tolerance(dtype))) << agreement.worst << ": " << agreement.max_rel_error;
    }
}

// A value that is not finite reaches the outputs of the rows that see it, and in the backward pass the gradients of the positions
// that a gradient that is not finite belongs to, in the first, the last and middle rows of a chunk and of a warp.
TEST(EmulatedLinear, AValueThatIsNotFiniteReachesExactlyTheRowsThatSeeIt) {
  const std::tuple<std::string, at::ScalarType, int64_t> kernels[] = {
      {"cuda", at::kBFloat16, 32}, {"cuda", at::kBFloat16, 64}, {"cuda", at::kBFloat16, 128},  {"cuda", at::kFloat, 16},
      {"cuda", at::kFloat, 128},   {"cuda", at::kHalf, 16},     {"cuda-tf32", at::kFloat, 16}, {"cuda-plain", at::kFloat, 16}};
  for (const auto& [kernel, dtype, dim] : kernels)
    for (const int64_t place : dim < 64 ? std::vector<int64_t>{0, 17, 63, 64, 95} : std::vector<int64_t>{17, 95}) {
      const auto method = make_method("linear:implementation=" + kernel);
      const auto problem = problem_of({100, 100, dim, dim}, dtype, Masking::causal, 1, 2);
      SCOPED_TRACE(kernel + " " + dtype_name(dtype) + " " + std::to_string(dim) + " " + std::to_string(place));
      const auto inputs = inputs_of(problem, Protocol::forward_backward);
      const auto all = at::arange(100);
      // Which rows of the first head are reached; the other head must not be.
      const auto reached = [&](const at::Tensor& x) {
        EXPECT_TRUE(x.select(1, 1).isfinite().all().item<bool>());
        return x.select(0, 0).select(0, 0).isfinite().logical_not().any(1);
      };
      for (const double value : {double(NAN), double(INFINITY)}) {
        auto other = inputs;
        other.v = inputs.v.detach().clone();
        other.v.select(1, 0).select(1, place).select(1, 3).fill_(value);
        other.v.set_requires_grad(true);
        const auto results = call(*method, other, Protocol::forward_backward);
        EXPECT_TRUE(at::equal(reached(results.output), all >= place));
        const auto output = results.output.select(0, 0).select(0, 0);
        EXPECT_TRUE(at::equal(output.isfinite().all(0).logical_not(), at::arange(dim) == 3)) << "other columns";
        EXPECT_TRUE(at::equal(reached(results.gradients.q), all >= place));
        EXPECT_FALSE(results.gradients.v.isnan().any().item<bool>());
      }
      auto other = inputs;
      other.grad_output = inputs.grad_output.clone();
      other.grad_output.select(1, 0).select(1, place).select(1, 3).fill_(NAN);
      const auto results = call(*method, other, Protocol::forward_backward);
      EXPECT_TRUE(at::equal(reached(results.gradients.q), all == place));
      EXPECT_TRUE(at::equal(reached(results.gradients.k), all <= place));
      EXPECT_TRUE(at::equal(reached(results.gradients.v), all <= place));
    }
}

// Prints how busy the splits keep the multiprocessors, and checks that they are busy for at least 90 % of the time.
TEST(LinearSplits, KeepTheMultiprocessorsOfAnH100Busy) {
  for (const auto& [pass, bytes, blocks_at_once] : {std::tuple("forward", 384, 3), {"backward", 512, 2}})
    for (const int64_t heads : {8, 16, 64, 128, 256})
      for (const int64_t positions : {4096, 8192, 16384, 32768, 65536}) {
        const auto splits = split_positions(heads, positions, bytes, blocks_at_once, kH100);
        const int64_t groups = (heads + splits.heads_at_once - 1) / splits.heads_at_once;
        const auto time = time_of(splits, heads, blocks_at_once, kH100);
        const double busy = double(heads * positions / kSplitUnit) / double(kH100.multiprocessors * time.chunks);
        std::printf("%-8s heads %3ld positions %5ld: %3ld groups of %2ld heads, %3ld splits of %4ld positions, busy %.3f\n", pass,
                    long(heads), long(positions), long(groups), long(splits.heads_at_once), long(splits.count),
                    long(splits.length), busy);
        EXPECT_GE(busy, 0.9) << pass << " " << heads << " " << positions;
        EXPECT_GE(splits.length, kMinSplit);
        EXPECT_LE(splits.heads_at_once * positions * bytes, kH100.l2_bytes / 4 * 3);
      }
}
TEST(LinearSplits, CoverEverySequence) {
  for (const int64_t heads : {0, 1, 3, 1000})
    for (const int64_t positions : {0, 1, 63, 64, 65, 129, 1000, 100000}) {
      const auto splits = split_positions(heads, positions, 384, 3, kH100);
      EXPECT_EQ(splits.length % kSplitUnit, 0);
      EXPECT_GE(splits.length * splits.count, positions);
      EXPECT_LT(splits.length * (splits.count - 1), std::max<int64_t>(1, positions));
      EXPECT_GE(splits.heads_at_once, 1);
    }
}

// In the trax profile the first chunk of a round looks back at another round; chunks of more queries than a block takes, hidden
// keys and short last chunks are covered too.
TEST(EmulatedLsh, GradientsOfEveryLookBack) {
  for (const auto* profile : {"trax", "fast-transformers"})
    for (const auto* rounds : {"1", "3"})
      for (const auto* chunk : {"16", "100", "300"})
        for (const auto masking : {Masking::none, Masking::causal_and_key_lengths})
          check(std::string("lsh:rounds=") + rounds + ",chunk=" + chunk + ",buckets=8,implementation=cuda,profile=" + profile,
                at::kFloat, {210, 210, 16, 8}, masking, 1, 2);
}

TEST(EmulatedLsh, GradientsAreTheSameBitsInEveryOrderOfThreadsAndBlocks) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto* spec :
         {"lsh:rounds=4,chunk=32,buckets=4,implementation=cuda", "lsh:rounds=2,chunk=100,buckets=4,implementation=cuda",
          "lsh:rounds=3,chunk=32,buckets=16,profile=fast-transformers,implementation=cuda"}) {
      SCOPED_TRACE(std::string(spec) + " " + dtype_name(dtype));
      const auto method = make_method(spec);
      // Without hidden keys, which are sorted into the last chunk, the first chunk of a round looks back at keys of another
      // round.
      const auto problem = problem_of({300, 300, 32, 32}, dtype, dtype == at::kFloat ? Masking::none : Masking::causal, 2, 1);
      const auto run = [&](emulation::ThreadOrder threads, emulation::ThreadOrder blocks, uint64_t seed) {
        emulation::set_thread_order(threads, seed);
        emulation::set_block_order(blocks, seed);
        auto results = call(*method, inputs_of(problem, Protocol::forward_backward), Protocol::forward_backward);
        emulation::set_thread_order(emulation::ThreadOrder::forward);
        emulation::set_block_order(emulation::ThreadOrder::forward);
        return results;
      };
      using enum emulation::ThreadOrder;
      const auto expected = run(forward, forward, 0);
      for (const auto& [threads, blocks, seed] :
           {std::tuple(forward, backward, 0), {forward, shuffled, 1}, {shuffled, shuffled, 2}}) {
        const auto results = run(threads, blocks, uint64_t(seed));
        EXPECT_TRUE(at::equal(results.output, expected.output));
        EXPECT_TRUE(at::equal(results.gradients.q, expected.gradients.q));
        EXPECT_TRUE(at::equal(results.gradients.v, expected.gradients.v));
      }
    }
}

// The accumulators have one size whatever the number of rounds, and the prediction includes them.
TEST(EmulatedLsh, PredictsThePeakOfTheBackwardPass) {
  for (const auto* spec : {"lsh:rounds=1,implementation=cuda", "lsh:rounds=4,chunk=128,implementation=cuda"}) {
    const auto method = make_method(spec);
    const auto problem = problem_of({256, 256, 64, 64}, at::kBFloat16, Masking::causal, 1, 4);
    const auto inputs = inputs_of(problem, Protocol::forward_backward);
    call(*method, inputs, Protocol::forward_backward);
    double peak = problem.input_bytes() + problem.output_bytes();
    const attnbench::AllocationCounter counter;
    call(*method, inputs, Protocol::forward_backward);
    peak += double(counter.peak_bytes());
    const auto predicted = method->cost(problem, Protocol::forward_backward).peak_bytes;
    EXPECT_GT(predicted, 0.9 * peak) << spec << " " << predicted / peak;
    EXPECT_LT(predicted, 1.2 * peak) << spec << " " << predicted / peak;
  }
}

TEST(EmulatedLsh, AValueThatIsNotFiniteReachesTheRowsThatSeeIt) {
  for (const auto masking : {Masking::none, Masking::causal})
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf})
      for (const int64_t dim : {16, 64})
        for (const double value : {double(NAN), double(INFINITY)}) {
          SCOPED_TRACE(std::string(name_of(masking)) + " " + dtype_name(dtype) + " " + std::to_string(dim));
          const auto inputs = inputs_of(problem_of({200, 200, dim, dim}, dtype, masking), Protocol::forward);
          inputs.v.select(0, 1).select(0, 1)[70][3].fill_(value);
          const auto reached = [&](const char* spec) {
            return call(*make_method(spec), inputs, Protocol::forward).output.isfinite().logical_not().any(3);
          };
          const auto expected = reached("lsh-composed:rounds=2,chunk=32,buckets=4");
          EXPECT_TRUE(at::equal(reached("lsh:rounds=2,chunk=32,buckets=4,implementation=cuda"), expected));
          EXPECT_GT(expected.sum().item<int64_t>(), 16);
          EXPECT_LT(expected.sum().item<int64_t>(), 200);
        }
}

TEST(EmulatedLsh, BucketsAreThoseOfFloat64) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto rotations = draw_rotations(8, 2, 64, 5, at::kCPU);
    // Vectors are moved so that their products with the two best directions of the first round are almost equal. In float32,
    // rounding would decide between them.
    auto x = inputs_of(problem_of({1000, 1000, 8, 8}, dtype, Masking::none), Protocol::forward).q.to(at::kDouble);
    const auto directions = rotations.to(at::kDouble).select(1, 0);  // [D, buckets / 2]
    const auto products = at::matmul(x, directions);
    const auto best = std::get<1>(products.abs().topk(2, 3));
    const auto signs = products.gather(3, best).sign();
    const auto chosen = directions.t().index({best}) * signs.unsqueeze(4);  // [B,H,N,2,D]
    const auto apart = chosen.select(3, 0) - chosen.select(3, 1);
    x = x - (x * apart).sum(3, true) / apart.square().sum(3, true) * apart;
    const auto qk = x.to(dtype);
    const auto* implementation = lsh_implementations().find({"cuda", dtype, at::kCPU, 8, 8});
    const auto order = implementation->forward({qk, qk, /*chunk=*/64, /*causal=*/false, {}, /*trax=*/true}, rotations, {}).order;
    EXPECT_TRUE(at::equal(order, at::argsort(lsh_buckets(qk, rotations, {}), /*stable=*/true, /*dim=*/3))) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace attn::cuda
