// Tests that the kernels read and write as many bytes of global memory as their formulas say, and that the counts are right.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

#include "attn/linear/cuda/traffic.h"
#include "attn/lsh/cuda/traffic.h"
#include "tests/emulation/instrumented/access_counter.h"
#include "tests/emulation/instrumented/faulty_kernels.h"
#include "tests/support/method_helpers.h"

namespace attn::emulation {
namespace {

constexpr double kMargin = 1.1;  // how much more than the formula kernels may read and write

AccessCounter count(const std::function<void()>& run) {
  AccessCounter counter;
  set_observer(&counter);
  run();
  set_observer(nullptr);
  return counter;
}

TEST(AccessCounter, CountsBankConflicts) {
  for (const auto& [stride, cycles] : {std::pair(1, 1), {2, 2}, {8, 8}, {32, 32}, {33, 1}}) {
    const auto total = count([s = stride] { reads_with_stride(s); }).total();
    EXPECT_EQ(total.shared_accesses, 2) << stride;
    EXPECT_EQ(total.shared_cycles, 2 * cycles) << stride;
    EXPECT_EQ(total.conflict_cycles, 2 * (cycles - 1)) << stride;
  }
}

TEST(AccessCounter, CountsGlobalMemoryOnceForABlock) {
  const auto counter = count(reads_and_writes_global_memory);
  ASSERT_EQ(counter.counts().size(), 1U);
  EXPECT_EQ(counter.counts().begin()->first, "global_kernel");
  const auto total = counter.total();
  EXPECT_EQ(total.blocks, 2);
  EXPECT_EQ(total.barriers, 2);
  EXPECT_EQ(total.bytes_read, 2 * 256);
  EXPECT_EQ(total.bytes_written, 2 * 128);
  EXPECT_EQ(total.accessed_bytes, 2 * (2 * 256 + 128));
}

std::string text_of(const AccessCounter& counter) {
  std::string text;
  for (const auto& [kernel, counts] : counter.counts())
    text += "\n" + kernel + ": " + std::to_string(counts.blocks) + " blocks read " + std::to_string(counts.bytes_read) +
            " and write " + std::to_string(counts.bytes_written) + " bytes; of " + std::to_string(counts.shared_cycles) +
            " cycles of shared memory " + std::to_string(counts.conflict_cycles) + " are conflicts; " +
            std::to_string(counts.barriers) + " barriers";
  return text;
}

// The blocks of all launches of a kernel, which for linear attention are the splits of all heads.
int64_t blocks_of(const AccessCounter& counter, const std::string& kernel) {
  for (const auto& [name, counts] : counter.counts())
    if (name.starts_with(kernel + "<")) return counts.blocks;
  ADD_FAILURE() << "no kernel " << kernel << " ran:" << text_of(counter);
  return 1;
}

// What share of a kernel's cycles of shared memory may be conflicts of banks: the largest share that was counted in the cases of
// this file, rounded up to a hundredth. Lower it when a kernel improves. A kernel that is not listed may have none.
double conflict_budget(const std::string& kernel, at::ScalarType dtype) {
  struct Budget {
    double float32, bfloat16;
  };
  static const std::map<std::string, Budget> budgets = {
      {"forward", {0.41, 0.29}},          {"sum_states", {0.36, 0.27}},  {"backward_keys", {0.42, 0.31}},
      {"backward_queries", {0.36, 0.22}}, {"lsh_forward", {0.11, 0.11}}, {"lsh_backward", {0.06, 0}},
  };
  const auto found = budgets.find(kernel.substr(0, kernel.find('<')));
  if (found == budgets.end()) return 0;
  return dtype == at::kFloat ? found->second.float32 : found->second.bfloat16;
}

void check_conflicts(const AccessCounter& counter, at::ScalarType dtype) {
  for (const auto& [kernel, counts] : counter.counts())
    EXPECT_LE(double(counts.conflict_cycles), conflict_budget(kernel, dtype) * double(counts.shared_cycles)) << kernel;
}

// Counts a forward pass alone, and with the backward pass, and expects at most kMargin of the formula. The formula must not
// promise much less than is counted either, so that the documents say what is true. Conflicts of banks have budgets.
template <class Formula>
void check(const std::string& spec, const Problem& problem, const Formula& formula) {
  const auto method = make_method(spec);
  const auto inputs = inputs_of(problem, Protocol::forward_backward);
  const auto forward = count([&] { call(*method, inputs_of(problem, Protocol::forward), Protocol::forward); });
  const auto both = count([&] { call(*method, inputs, Protocol::forward_backward); });
  const auto bytes = [](const AccessCounter& counter) {
    return double(counter.total().bytes_read + counter.total().bytes_written);
  };
  for (const auto pass : {cuda::Pass::forward, cuda::Pass::backward}) {
    const bool is_forward = pass == cuda::Pass::forward;
    const double counted = is_forward ? bytes(forward) : bytes(both) - bytes(forward), expected = formula(forward, pass);
    const auto message = spec + (is_forward ? " forward" : " backward") + text_of(is_forward ? forward : both);
    EXPECT_LE(counted, kMargin * expected) << message;
    EXPECT_GE(counted, expected / kMargin) << message;
  }
  check_conflicts(both, problem.dtype);
}

class Traffic : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Kernels, Traffic, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& tested) { return std::string(dtype_name(tested.param)); });

TEST_P(Traffic, OfLinearAttention) {
  const auto element = int64_t(c10::elementSize(GetParam()));
  for (const auto masking : {Masking::causal, Masking::none})
    for (const auto& [heads, length, multiprocessors] : {std::array{1, 512, 1}, {1, 512, 100}, {4, 128, 1}}) {
      set_multiprocessors(multiprocessors);
      const auto problem = problem_of({length, length, 64, 64}, GetParam(), masking, 1, heads);
      check("linear:implementation=cuda", problem,
            [&, heads_of_all = int64_t(heads), positions = int64_t(length)](const AccessCounter& counter, cuda::Pass pass) {
              const cuda::LinearTrafficProblem p{.heads = heads_of_all,
                                                 .query_len = positions,
                                                 .key_len = positions,
                                                 .head_dim = 64,
                                                 .value_dim = 64,
                                                 .tile_dim = 64,
                                                 .element_bytes = element,
                                                 .causal = is_causal(masking),
                                                 .splits = blocks_of(counter, "forward") / heads_of_all};
              return cuda::linear_traffic(p, pass);
            });
    }
  set_multiprocessors(2);
}

TEST_P(Traffic, OfLshAttention) {
  const auto element = int64_t(c10::elementSize(GetParam()));
  for (const int64_t rounds : {1, 2}) {
    const auto problem = problem_of({512, 512, 64, 64}, GetParam(), Masking::causal, 1, 1);
    check("lsh:rounds=" + std::to_string(rounds) + ",chunk=64,buckets=16,implementation=cuda", problem,
          [&](const AccessCounter&, cuda::Pass pass) {
            return cuda::lsh_traffic({.heads = 1,
                                      .length = 512,
                                      .rounds = rounds,
                                      .chunk = 64,
                                      .columns = 8,
                                      .head_dim = 64,
                                      .value_dim = 64,
                                      .element_bytes = element,
                                      .tile_rows = 64},
                                     pass);
          });
  }
}

}  // namespace
}  // namespace attn::emulation
