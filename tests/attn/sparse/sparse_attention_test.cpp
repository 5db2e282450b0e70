// Tests of the operator attn::sparse_attention: every implementation against its composition of ATen operations in float64.
#include "attn/sparse/sparse_attention.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>
#include <random>

#include "attn/cpu/instruction_set.h"
#include "tests/support/errors_of.h"

namespace attn {
namespace {

using at::Tensor;
using attnbench::message_of;

// The arguments of a call, and the gradients of its results.
struct Call {
  Tensor q, k, v, grad_output, grad_log_sum_exp;
  bool causal = false;
  std::string pattern = "all";
  std::optional<Tensor> key_lengths, cu_seqlens, sinks, chosen_blocks;
  int64_t block = 64;

  SparseAttentionOptions options(const std::string& implementation) const {
    return {.causal = causal,
            .pattern = pattern,
            .key_lengths = key_lengths,
            .cu_seqlens = cu_seqlens,
            .sinks = sinks,
            .chosen_blocks = chosen_blocks,
            .block = block,
            .implementation = implementation};
  }

  Call in(at::ScalarType dtype) const {
    auto call = *this;
    for (auto* x : {&call.q, &call.k, &call.v, &call.grad_output}) *x = x->to(dtype);
    const auto accumulator = dtype == at::kDouble ? at::kDouble : at::kFloat;
    call.grad_log_sum_exp = grad_log_sum_exp.to(accumulator);
    if (sinks) call.sinks = sinks->to(accumulator);
    return call;
  }
};

struct Sizes {
  int64_t batch = 2, heads = 2, kv_heads = 2, value_heads = 2, query_len = 70, key_len = 70, dim = 16, value_dim = 16;
};

Call random_call(const Sizes& s, uint64_t seed, const std::string& inputs = "normal") {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto draw = [&](at::IntArrayRef sizes) { return at::randn(sizes, generator, at::kDouble); };
  Call call;
  const auto heads = std::max({s.heads, s.kv_heads, s.value_heads});
  call.q = draw({s.batch, s.heads, s.query_len, s.dim});
  call.k = draw({s.batch, s.kv_heads, s.key_len, s.dim});
  call.v = draw({s.batch, s.value_heads, s.key_len, s.value_dim});
  call.grad_output = draw({s.batch, heads, s.query_len, s.value_dim});
  call.grad_log_sum_exp = draw({s.batch, heads, s.query_len});
  if (inputs == "offset") {
    call.k += 3;
    call.v += 5;
  }
  if (inputs == "scaled") {
    call.q *= 30;
    call.v *= 100;
  }
  if (inputs == "outliers") call.q.select(3, 0).mul_(40), call.k.select(2, 0).mul_(20);
  return call;
}

struct CallResults {
  std::vector<Tensor> all;   // output, log-sum-exp, and the gradients of q, k, v and the sinks
  double sum_for_sinks = 0;  // the largest sum, over the queries of a head, of the absolute terms of the gradient of its sink
};
constexpr const char* kNames[] = {"output", "log_sum_exp", "grad_q", "grad_k", "grad_v", "grad_sinks"};

CallResults run(Call call, const std::string& implementation) {
  const at::AutoGradMode enabled(true);
  std::vector<Tensor> leaves;
  for (auto* x : {&call.q, &call.k, &call.v}) leaves.push_back(*x = x->detach().requires_grad_(true));
  if (call.sinks) leaves.push_back(*(call.sinks = call.sinks->detach().requires_grad_(true)));
  const auto [output, log_sum_exp] = sparse_attention(call.q, call.k, call.v, call.options(implementation));
  // A log-sum-exp of −∞ depends on nothing.
  const auto weights = call.grad_log_sum_exp.masked_fill(log_sum_exp.detach().isinf(), 0);
  auto gradients = torch::autograd::grad({output, log_sum_exp}, leaves, {call.grad_output, weights});
  CallResults results{{output.detach(), log_sum_exp.detach()}};
  results.all.insert(results.all.end(), gradients.begin(), gradients.end());
  if (call.sinks && output.numel() > 0) {
    const auto delta = (output * call.grad_output).sum(-1) - weights;
    const auto terms = (call.sinks->view({1, -1, 1}) - log_sum_exp).exp() * delta;
    results.sum_for_sinks = terms.abs().sum(at::IntArrayRef{0, 2}).max().item<double>();
  }
  return results;
}

void expect_same(const CallResults& found, const CallResults& exact, double tolerance) {
  ASSERT_EQ(found.all.size(), exact.all.size());
  for (size_t i = 0; i < found.all.size(); ++i) {
    auto x = found.all[i].to(at::kDouble), y = exact.all[i].to(at::kDouble);
    ASSERT_EQ(x.sizes(), y.sizes()) << kNames[i];
    if (i == 1) {
      EXPECT_TRUE(at::equal(x.isinf(), y.isinf())) << kNames[i];
      x = x.masked_fill(x.isinf(), 0);
      y = y.masked_fill(y.isinf(), 0);
    }
    ASSERT_TRUE(at::isfinite(x).all().item<bool>()) << kNames[i];
    if (x.numel() == 0) continue;
    // The terms of the gradient of a sink have both signs, and each is rounded at its own size.
    const auto size = i == 5 ? exact.sum_for_sinks : y.abs().max().item<double>();
    const auto scale = std::max(1e-3, size);
    EXPECT_LE((x - y).abs().max().item<double>() / scale, tolerance) << kNames[i];
  }
}

// The implementations that this processor can run in this dtype.
std::vector<std::string> implementations(at::ScalarType dtype) {
  std::vector<std::string> names;
  for (const auto set : {cpu::InstructionSet::avx512, cpu::InstructionSet::avx2, cpu::InstructionSet::neon})
    if (dtype != at::kDouble && cpu::is_available(set)) names.push_back(cpu::name_of(set));
  names.emplace_back("portable");
  return names;
}

double tolerance_of(at::ScalarType dtype) { return dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 2e-5 : 3e-2; }

void check(const Call& call, at::ScalarType dtype) {
  const auto rounded = call.in(dtype);
  const auto exact = run(rounded.in(at::kDouble), "composed");
  for (const auto& implementation : implementations(dtype)) {
    SCOPED_TRACE(implementation + " " + call.pattern + (call.causal ? " causal " : " ") + c10::toString(dtype));
    expect_same(run(rounded, implementation), exact, tolerance_of(dtype));
  }
}

constexpr const char* kPatterns[] = {
    "all",       "window:1",  "window:20",   "window:500",    "window:9+first:70", "window:9+global:3", "global:5",
    "strided:8", "strided:1", "dilated:5/3", "dilated:2/300", "block:16/4",        "block:7/7",         "block:300/1"};

TEST(SparseAttention, EveryPatternAgreesWithFloat64) {
  for (const auto* pattern : kPatterns)
    for (const bool causal : {true, false})
      for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
        auto call = random_call({.query_len = 150, .key_len = 150}, 1);
        call.pattern = pattern;
        call.causal = causal;
        check(call, dtype);
      }
}

TEST(SparseAttention, SizesThatFillNoTile) {
  for (const auto& s : {Sizes{.dim = 1, .value_dim = 1}, Sizes{.dim = 24, .value_dim = 40}, Sizes{.dim = 64, .value_dim = 64},
                        Sizes{.dim = 80, .value_dim = 24}, Sizes{.batch = 1, .query_len = 1, .key_len = 1},
                        Sizes{.query_len = 64, .key_len = 64}, Sizes{.query_len = 1, .key_len = 200},
                        Sizes{.query_len = 65, .key_len = 190}, Sizes{.query_len = 190, .key_len = 65}, Sizes{.batch = 0}})
    for (const auto* pattern : {"all", "window:30", "strided:9", "block:16/3"})
      for (const bool causal : {true, false}) {
        SCOPED_TRACE("N=" + std::to_string(s.query_len) + " L=" + std::to_string(s.key_len) + " D=" + std::to_string(s.dim));
        auto call = random_call(s, 2);
        call.pattern = pattern;
        call.causal = causal;
        check(call, at::kFloat);
        check(call, at::kBFloat16);
      }
}

TEST(SparseAttention, HeadsMayShareKeysAndValues) {
  for (const auto& s :
       {Sizes{.heads = 6, .kv_heads = 2, .value_heads = 2}, Sizes{.batch = 1, .heads = 4, .kv_heads = 1, .value_heads = 1},
        Sizes{.heads = 6, .kv_heads = 2, .value_heads = 3}, Sizes{.heads = 2, .kv_heads = 2, .value_heads = 6},
        Sizes{.batch = 1, .heads = 1, .kv_heads = 3, .value_heads = 3}})
    for (const auto* pattern : {"all", "window:30", "strided:9"})
      for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
        auto call = random_call(s, 3);
        call.pattern = pattern;
        call.causal = true;
        check(call, dtype);
      }
}

TEST(SparseAttention, KeyLengthsSinksAndPackedSequences) {
  for (const auto* pattern :
       {"all", "window:20", "window:9+first:4", "window:3+global:2", "strided:8", "dilated:5/3", "block:16/4"})
    for (const bool causal : {true, false})
      for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
        auto call = random_call({.batch = 3, .heads = 2, .query_len = 150, .key_len = 150}, 4);
        call.pattern = pattern;
        call.causal = causal;
        call.key_lengths = at::tensor({0, 70, 150}, at::kLong);
        check(call, dtype);
        call.sinks = at::tensor({1.5, -0.5}, at::kDouble);
        check(call, dtype);
        call.key_lengths = std::nullopt;
        call.cu_seqlens = at::tensor({0, 1, 1, 90, 150}, at::kLong);
        check(call, dtype);
      }
}

TEST(SparseAttention, ASinkOfMinusInfinityHasNoWeight) {
  auto call = random_call({.query_len = 30, .key_len = 30}, 4);
  call.key_lengths = at::tensor({0, 30}, at::kLong);  // the rows of the first sequence see no key
  call.sinks = at::tensor({-INFINITY, 0.5}, at::kDouble);
  auto all = implementations(at::kFloat);
  all.emplace_back("composed");
  for (const auto& implementation : all) {
    SCOPED_TRACE(implementation);
    const auto found = run(call.in(at::kFloat), implementation).all;
    EXPECT_EQ(found[5][0].item<float>(), 0);
    for (const size_t i : {0, 2, 3, 4, 5}) EXPECT_TRUE(at::isfinite(found[i]).all().item<bool>()) << kNames[i];
  }
}

TEST(SparseAttention, HardInputs) {
  for (const auto* inputs : {"offset", "scaled", "outliers"})
    for (const auto* pattern : {"all", "window:40", "strided:8"}) {
      SCOPED_TRACE(inputs);
      auto call = random_call({.query_len = 150, .key_len = 150, .dim = 32, .value_dim = 32}, 5, inputs);
      call.pattern = pattern;
      call.causal = true;
      check(call, at::kFloat);
    }
}

TEST(SparseAttention, StridesMayBeArbitrary) {
  auto call = random_call({.query_len = 100, .key_len = 100}, 6);
  for (auto* x : {&call.q, &call.k, &call.v, &call.grad_output}) *x = x->transpose(2, 3).contiguous().transpose(2, 3);
  call.pattern = "window:30";
  call.causal = true;
  check(call, at::kFloat);
  auto by_position = random_call({.query_len = 100, .key_len = 100}, 6);
  for (auto* x : {&by_position.q, &by_position.k, &by_position.v, &by_position.grad_output})
    *x = x->transpose(1, 2).contiguous().transpose(1, 2);
  by_position.pattern = "strided:10";
  check(by_position, at::kFloat);
}

// The same threads give the same bits; more threads only divide the sums of gradients of keys and values otherwise.
TEST(SparseAttention, RepeatsItsBits) {
  for (const auto* pattern : {"all", "window:50", "strided:16"})
    for (const auto& s : {Sizes{.batch = 1, .heads = 1, .kv_heads = 1, .value_heads = 1, .query_len = 300, .key_len = 300},
                          Sizes{.batch = 1, .heads = 3, .kv_heads = 3, .value_heads = 3, .query_len = 300, .key_len = 300}}) {
      auto call = random_call(s, 7).in(at::kFloat);
      call.pattern = pattern;
      call.causal = true;
      const auto once = run(call, "auto"), again = run(call, "auto");
      for (size_t i = 0; i < once.all.size(); ++i) EXPECT_TRUE(at::equal(once.all[i], again.all[i])) << kNames[i];
      const auto threads = at::get_num_threads();
      at::set_num_threads(1);
      const auto alone = run(call, "auto");
      at::set_num_threads(threads);
      expect_same(alone, once, 1e-5);
      EXPECT_TRUE(at::equal(alone.all[0], once.all[0]));
    }
}

// More masks: ATTNBENCH_RANDOM_MASKS=10000.
TEST(SparseAttention, RandomMasks) {
  const auto* const wanted = std::getenv("ATTNBENCH_RANDOM_MASKS");
  const int masks = wanted ? std::atoi(wanted) : 300;
  std::mt19937 random(8);
  const auto up_to = [&](int64_t max) { return std::uniform_int_distribution<int64_t>(1, max)(random); };
  for (int i = 0; i < masks; ++i) {
    const auto number = [&] { return std::to_string(up_to(80)); };
    const auto block = up_to(80);
    const std::string texts[] = {"all",
                                 "window:" + number(),
                                 "window:" + number() + "+first:" + number(),
                                 "window:" + number() + "+global:" + number(),
                                 "strided:" + number(),
                                 "dilated:" + number() + "/" + number(),
                                 "block:" + std::to_string(block) + "/" + std::to_string(up_to(block))};
    Sizes s{.batch = up_to(2), .query_len = up_to(130), .dim = up_to(40), .value_dim = up_to(40)};
    s.heads = up_to(2) * 2;
    s.kv_heads = s.value_heads = up_to(2);
    s.key_len = up_to(3) == 1 ? up_to(130) : s.query_len;
    auto call = random_call(s, uint64_t(100 + i));
    call.pattern = texts[size_t(up_to(7) - 1)];
    call.causal = up_to(2) == 1;
    if (up_to(3) == 1) call.key_lengths = at::full({s.batch}, up_to(s.key_len + 1) - 1, at::kLong);
    if (up_to(3) == 1) call.sinks = at::randn({s.heads}, at::kDouble);
    SCOPED_TRACE("case " + std::to_string(i) + " N=" + std::to_string(s.query_len) + " L=" + std::to_string(s.key_len));
    check(call, at::kFloat);
  }
}

// Blocks that are chosen for each query, some more than once and some never, with −1 among them.
TEST(SparseAttention, ChosenBlocksAgreeWithFloat64) {
  std::mt19937 random(9);
  const auto up_to = [&](int64_t max) { return std::uniform_int_distribution<int64_t>(1, max)(random); };
  for (int i = 0; i < 60; ++i) {
    Sizes s{.batch = up_to(2), .query_len = up_to(200), .dim = up_to(40), .value_dim = up_to(40)};
    s.heads = up_to(3) * 2;
    s.kv_heads = s.value_heads = up_to(2);
    s.key_len = up_to(3) == 1 ? up_to(200) : s.query_len;
    auto call = random_call(s, uint64_t(500 + i));
    const int64_t blocks[] = {1, 7, 16, 64, 128, 300};
    call.block = blocks[up_to(6) - 1];
    call.causal = up_to(2) == 1;
    const auto count = (s.key_len + call.block - 1) / call.block;
    const int64_t heads[] = {1, 2, s.heads};
    call.chosen_blocks = at::randint(-1, count, {s.batch, heads[up_to(3) - 1], s.query_len, up_to(6) - 1}, at::kLong);
    if (up_to(3) == 1) call.key_lengths = at::full({s.batch}, up_to(s.key_len + 1) - 1, at::kLong);
    if (up_to(3) == 1) call.sinks = at::randn({s.heads}, at::kDouble);
    SCOPED_TRACE("case " + std::to_string(i) + " N=" + std::to_string(s.query_len) + " L=" + std::to_string(s.key_len) +
                 " block " + std::to_string(call.block));
    check(call, at::kFloat);
    if (i % 4 == 0) check(call, at::kBFloat16);
    if (i % 4 == 1) check(call, at::kDouble);
  }
}

TEST(SparseAttention, WrongArgumentsAreErrorsThatNameThem) {
  auto call = random_call({}, 9).in(at::kFloat);
  const auto message = [&](const auto& change) {
    auto wrong = call;
    change(wrong);
    return message_of<c10::ValueError>([&] { sparse_attention(wrong.q, wrong.k, wrong.v, wrong.options("auto")); });
  };
  EXPECT_CONTAINS(message([](Call& c) { c.pattern = "window:0"; }), "pattern = 'window:0': the window is out of range");
  EXPECT_CONTAINS(message([](Call& c) { c.k = c.k.narrow(3, 0, 8); }), "sparse_attention: k has dim 8");
  EXPECT_CONTAINS(message([](Call& c) {
                    c.k = at::cat({c.k, c.k.narrow(1, 0, 1)}, 1);
                  }),
                  "q has heads 2, expected a divisor of 3");
  EXPECT_CONTAINS(message([](Call& c) { c.key_lengths = at::tensor({0, 71}, at::kLong); }), "key_lengths holds 0 to 71");
  EXPECT_CONTAINS(message([](Call& c) { c.cu_seqlens = at::tensor({0, 50}, at::kLong); }), "cu_seqlens goes from 0 to 50");
  EXPECT_CONTAINS(message([](Call& c) {
                    c.cu_seqlens = at::tensor({0, 50, 40, 70}, at::kLong);
                  }),
                  "cu_seqlens falls from 50 to 40");
  EXPECT_CONTAINS(message([](Call& c) { c.sinks = at::zeros({3}); }), "sparse_attention: sinks is Float [3]");
  const auto chosen = [](at::IntArrayRef sizes, int64_t number) { return at::full(sizes, number, at::kLong); };
  EXPECT_CONTAINS(message([&](Call& c) {
                    c.chosen_blocks = chosen({2, 2, 70, 1}, 2);
                  }),
                  "chosen_blocks holds 2 to 2, expected -1 to 1, as 70 keys have 2 blocks of 64");
  EXPECT_CONTAINS(message([&](Call& c) { c.chosen_blocks = chosen({2, 2, 70, 1}, -2); }), "chosen_blocks holds -2 to -2");
  EXPECT_CONTAINS(message([&](Call& c) { c.chosen_blocks = chosen({2, 3, 70, 1}, 0); }), "with a divisor C of 2");
  EXPECT_CONTAINS(message([&](Call& c) { c.chosen_blocks = chosen({2, 2, 69, 1}, 0); }), "expected int64 [2,C,70,K]");
  EXPECT_CONTAINS(message([&](Call& c) {
                    c.chosen_blocks = chosen({2, 2, 70, 1}, 0);
                    c.pattern = "window:3";
                  }),
                  "chosen_blocks does not go with a pattern");
  EXPECT_CONTAINS(message([&](Call& c) {
                    c.chosen_blocks = chosen({2, 2, 70, 1}, 0);
                    c.block = 0;
                  }),
                  "block = 0, expected at least 1");
}

}  // namespace
}  // namespace attn
