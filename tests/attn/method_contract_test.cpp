// Tests of the contract that every attention method must meet. They loop over the registry, so that a new method is tested as
// soon as it is registered.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <set>

#include "harness/worker/cpu/memory.h"
#include "tests/support/errors_of.h"
#include "tests/support/gated.h"
#include "tests/support/head_slopes.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

using attnbench::contains;
using attnbench::message_of;

// These shapes include one position, odd lengths, a length that is not a multiple of any chunk, unequal dims, dims of many sizes,
// cross attention and a single query.
constexpr Shape kShapes[] = {{1, 1, 8, 8},       {33, 33, 16, 24},   {kMaxLength, kMaxLength, 32, 32},
                             {129, 129, 24, 40}, {17, 17, 1, 1},     {20, 20, 64, 64},
                             {19, 19, 80, 80},   {21, 21, 128, 128}, {7, 7, 1, 5},
                             {65, 190, 32, 16},  {190, 65, 16, 8},   {1, 50, 24, 24}};

#ifdef ATTN_CUDA_EMULATION
constexpr int64_t kHeadsOfLongShapes = 1;  // emulation is slow
#else
constexpr int64_t kHeadsOfLongShapes = 3;
#endif

struct Contract {
  std::string spec;
  at::ScalarType dtype;
  Masking masking;
};

std::string name_of(const Contract& contract) {
  return identifier(contract.spec) + "__" + dtype_name(contract.dtype) + "__" + name_of(contract.masking);
}
void PrintTo(const Contract& contract, std::ostream* out) { *out << name_of(contract); }

std::vector<Contract> every_contract() {
  std::vector<Contract> all;
  auto specs = method_specs();
  specs.emplace_back("test-head-slopes");  // whose heads and batch entries differ
  specs.emplace_back("test-gated");        // which reads a further tensor
  for (const auto& spec : specs)
    for (const auto dtype : kDtypes)
      for (const auto masking : kMaskings) {
#ifdef ATTN_CUDA_EMULATION  // is slow, and kernels of all dtypes share the code of the masks
        if (dtype != at::kFloat && (masking == Masking::causal || masking == Masking::key_lengths)) continue;
#endif
        all.push_back({spec, dtype, masking});
      }
  return all;
}

class MethodContract : public testing::TestWithParam<Contract> {};
INSTANTIATE_TEST_SUITE_P(Registry, MethodContract, testing::ValuesIn(every_contract()),
                         [](const auto& tested) { return name_of(tested.param); });

TEST_P(MethodContract, AgreesWithItsReference) {
  const auto& [spec, dtype, masking] = GetParam();
  const auto method = make_method(spec);
  for (const auto& shape : kShapes) {
    // A method that confuses heads with batch entries or rows is right for two of each by chance.
    const auto problem = problem_of(shape, dtype, masking, 2, shape.query_len <= 33 ? 5 : kHeadsOfLongShapes);
    for (const auto protocol : {Protocol::forward, Protocol::forward_backward}) {
      SCOPED_TRACE(text_of(shape) + (protocol == Protocol::forward ? " forward" : " backward"));
      if (divides_by_epsilon_alone(spec, problem)) continue;
      const auto inputs = inputs_of(*method, problem, protocol);
      const auto results = call_or_refuse(*method, problem, inputs, protocol);
      if (!results) continue;
      EXPECT_EQ(results->output.sizes(), (at::IntArrayRef{problem.batch, problem.heads, problem.query_len, problem.value_dim}));
      EXPECT_EQ(results->output.scalar_type(), dtype);
      EXPECT_FALSE(method->implementation().empty());
      if (protocol == Protocol::forward_backward) {
        for (const auto& input : method->inputs()) {
          if (!input.is_part_of(problem)) continue;
          EXPECT_EQ((results->gradients.*input.member).sizes(), (inputs.*input.member).sizes()) << input.name;
        }
      }
      const auto agreement = compare(*method, inputs, *results, Selection::everything(problem));
      EXPECT_TRUE(agreement.within(method->error_tolerance(dtype)))
          << agreement.worst << ": " << agreement.max_rel_error << ", finite " << agreement.finite;
    }
  }
}

// Heads that share those of q, k or v, in any of the ways that models have them.
TEST_P(MethodContract, SharedHeadsAgreeWithTheReference) {
  const auto& [spec, dtype, masking] = GetParam();
  const auto method = make_method(spec);
  if (method->capabilities().shared_heads == SharedHeads::no) return;
  if (spec.starts_with("rff") && dtype == at::kBFloat16)
    GTEST_SKIP() << "its weights have both signs, so that a small denominator magnifies the rounding of the dtype";
  struct Heads {
    int64_t queries, keys, values, output;
  };
  for (const auto& heads : {Heads{6, 2, 2, 6}, Heads{6, 1, 1, 6}, Heads{2, 2, 6, 6}, Heads{6, 2, 3, 6}, Heads{2, 6, 6, 6}}) {
    auto problem = problem_of({33, 33, 16, 24}, dtype, masking, 2, heads.queries);
    problem.kv_heads = heads.keys;
    problem.value_heads = heads.values;
    SCOPED_TRACE("heads " + std::to_string(heads.queries) + ", " + std::to_string(heads.keys) + ", " +
                 std::to_string(heads.values));
    for (const auto protocol : {Protocol::forward, Protocol::forward_backward}) {
      const auto inputs = inputs_of(*method, problem, protocol);
      const auto results = call_or_refuse(*method, problem, inputs, protocol);
      if (!results) continue;
      EXPECT_EQ(results->output.size(1), heads.output);
      for (const auto& gradient : gradients_in(*results))
        EXPECT_EQ(gradient.tensor.sizes(), (inputs.*gradient.input).sizes()) << gradient.name;
      const auto agreement = compare(*method, inputs, *results, Selection::everything(problem));
      EXPECT_TRUE(agreement.within(method->error_tolerance(dtype))) << agreement.worst << ": " << agreement.max_rel_error;
      // A reference of some groups of heads is given all heads of these.
      Selection one{at::tensor({1}, at::kLong), at::tensor({0}, at::kLong), at::arange(33), problem.head_groups(), heads.output};
      const auto restricted = attnbench::restrict_gradient(inputs, one);
      EXPECT_TRUE(compare(*method, restricted, call(*method, restricted, protocol), one).within(method->error_tolerance(dtype)));
    }
  }
}

// Patterns of visible keys, with heads that share keys, and with more and fewer keys than queries.
TEST_P(MethodContract, PatternsAgreeWithTheReference) {
  const auto& [spec, dtype, masking] = GetParam();
  const auto method = make_method(spec);
  const bool takes_patterns = method->capabilities().patterns;
  for (const std::string pattern :
       {"window:5", "window:4+first:3", "window:3+global:2", "global:2", "strided:6", "dilated:3/4", "block:8/2", "window:500"}) {
    for (const auto& shape : {Shape{33, 33, 16, 24}, Shape{20, 47, 16, 16}, Shape{47, 20, 16, 16}}) {
      auto problem = problem_of(shape, dtype, masking, 2, 4);
      problem.pattern = Pattern::parse(pattern);
      SCOPED_TRACE(pattern + " " + text_of(shape));
      if (method->capabilities().shared_heads != SharedHeads::no) problem.kv_heads = problem.value_heads = 2;
      for (const auto protocol : {Protocol::forward, Protocol::forward_backward}) {
        const auto inputs = inputs_of(*method, problem, protocol);
        const auto results = call_or_refuse(*method, problem, inputs, protocol);
        EXPECT_TRUE(takes_patterns || !results);
        if (!results) continue;
        const auto agreement = compare(*method, inputs, *results, Selection::everything(problem));
        EXPECT_TRUE(agreement.within(method->error_tolerance(dtype)))
            << agreement.worst << ": " << agreement.max_rel_error << ", finite " << agreement.finite;
      }
      if (!takes_patterns) return;  // once is enough
    }
  }
}

// Sinks, alone, with a window, and with heads that share keys. Methods that do not read them refuse them.
TEST_P(MethodContract, SinksAgreeWithTheReference) {
  const auto& [spec, dtype, masking] = GetParam();
  const auto method = make_method(spec);
  const auto can = method->capabilities();
  const auto reads_sinks =
      std::any_of(can.inputs.begin(), can.inputs.end(), [](const InputSpec& input) { return input.member == &Inputs::sinks; });
  for (const std::string pattern : {"all", "window:5", "strided:6"}) {
    if (pattern != "all" && !can.patterns) break;
    for (const auto& shape : {Shape{33, 33, 16, 24}, Shape{20, 47, 16, 16}, Shape{9, 4, 8, 8}}) {
      auto problem = problem_of(shape, dtype, masking, 2, 3);
      problem.pattern = Pattern::parse(pattern);
      problem.sinks = true;
      SCOPED_TRACE(pattern + " " + text_of(shape));
      if (!reads_sinks) {
        EXPECT_TRUE(method->why_unsupported(problem, Protocol::forward));
        auto inputs = inputs_of(*method, problem, Protocol::forward);
        inputs.sinks = at::zeros({3}, accumulator_dtype(dtype));
        EXPECT_CONTAINS(message_of<c10::ValueError>([&] { method->forward(inputs); }), "does not read the input sinks");
        return;  // once is enough
      }
      if (can.shared_heads != SharedHeads::no) problem.value_heads = 6;
      for (const auto protocol : {Protocol::forward, Protocol::forward_backward}) {
        const auto inputs = inputs_of(*method, problem, protocol);
        ASSERT_EQ(inputs.sinks.sizes(), at::IntArrayRef{problem.output_head_count()});
        const auto results = call_or_refuse(*method, problem, inputs, protocol);
        if (!results) continue;
        const auto everything = Selection::everything(problem);
        EXPECT_TRUE(compare(*method, inputs, *results, everything).within(method->error_tolerance(dtype)));
        if (protocol == Protocol::forward) {
          // The comparison sees that a call leaves the sinks out, except in dtypes whose rounding hides one of 47 shares.
          if (dtype != at::kFloat && dtype != at::kDouble) continue;
          auto without = inputs;
          without.sinks.reset();
          EXPECT_FALSE(
              compare(*method, inputs, call(*method, without, protocol), everything).within(method->error_tolerance(dtype)));
        } else {
          EXPECT_EQ(results->gradients.sinks.sizes(), inputs.sinks.sizes());
          // A reference of some groups of heads is given the sinks of these.
          const Selection one{at::tensor({1}, at::kLong), at::tensor({2}, at::kLong), at::arange(shape.query_len),
                              problem.head_groups(), problem.output_head_count()};
          const auto restricted = attnbench::restrict_gradient(inputs, one);
          EXPECT_TRUE(
              compare(*method, restricted, call(*method, restricted, protocol), one).within(method->error_tolerance(dtype)));
        }
      }
    }
  }
}

// Packed sequences of one position, of less than a tile and of more, alone and with patterns, with heads that share keys.
TEST_P(MethodContract, PackedSequencesAgreeWithTheReference) {
  const auto& [spec, dtype, masking] = GetParam();
  const auto method = make_method(spec);
  const auto can = method->capabilities();
  for (const std::string pattern : {"all", "window:5", "block:8/2", "global:2"}) {
    if (pattern != "all" && !can.patterns) break;
    for (const auto& [length, packed] : {std::pair{80, "lengths:1,70,9"}, {33, "uniform:6"}}) {
      auto problem = problem_of({length, length, 16, 24}, dtype, masking, /*batch=*/1, 2);
      problem.packed = PackedSequences::parse(packed);
      problem.pattern = Pattern::parse(pattern);
      SCOPED_TRACE(std::string(packed) + " " + pattern);
      if (has_key_lengths(masking)) {
        EXPECT_CONTAINS(message_of<c10::ValueError>([&] { problem.validate(); }), "does not go with key lengths");
        return;
      }
      if (can.shared_heads != SharedHeads::no) problem.value_heads = 4;
      for (const auto protocol : {Protocol::forward, Protocol::forward_backward}) {
        const auto inputs = inputs_of(*method, problem, protocol);
        ASSERT_EQ(inputs.mask.cu_seqlens->size(0), problem.packed.count() + 1);
        const auto results = call_or_refuse(*method, problem, inputs, protocol);
        EXPECT_TRUE(can.packed || !results);
        if (!results) continue;
        const auto agreement = compare(*method, inputs, *results, Selection::everything(problem));
        EXPECT_TRUE(agreement.within(method->error_tolerance(dtype)))
            << agreement.worst << ": " << agreement.max_rel_error << ", finite " << agreement.finite;
      }
      if (!can.packed) return;  // once is enough
    }
  }
}

// Inputs with means, scales and outliers, which make a careless implementation lose digits, overflow or underflow.
TEST_P(MethodContract, AgreesOnHardInputs) {
  using attnbench::InputDistribution;
  const auto& [spec, dtype, masking] = GetParam();
  const auto method = make_method(spec);
  for (const auto distribution : {InputDistribution::offset, InputDistribution::scaled, InputDistribution::outliers}) {
    // The gradients of values of a thousand are beyond the range of float16.
    if (dtype == at::kHalf && distribution == InputDistribution::scaled) continue;
    for (const auto& shape : {Shape{33, 33, 16, 24}, Shape{kMaxLength / 2, kMaxLength / 2, 32, 32}}) {
      for (const auto protocol : {Protocol::forward, Protocol::forward_backward}) {
        if (protocol == Protocol::forward && shape.query_len > 33) continue;  // the backward pass needs the output, too
        SCOPED_TRACE(text_of(shape) + (protocol == Protocol::forward ? " forward" : " backward") + " distribution " +
                     std::to_string(int(distribution)));
        const auto problem = problem_of(shape, dtype, masking);
        const auto inputs = inputs_of(*method, problem, protocol, 1, distribution);
        const auto results = call_or_refuse(*method, problem, inputs, protocol);
        if (!results) continue;
        const auto agreement = compare(*method, inputs, *results, Selection::everything(problem));
        EXPECT_TRUE(agreement.within(method->error_tolerance(dtype)))
            << agreement.worst << ": " << agreement.max_rel_error << ", excess " << agreement.excess_error << ", finite "
            << agreement.finite;
        // Kernels for bfloat16, float16 and TF32 may round features, which loses the gradient of rows whose features are almost
        // equal. The products of exponentiated features can all underflow in a row.
        const bool rounds_features = dtype == at::kBFloat16 || dtype == at::kHalf || spec.find("tf32") != std::string::npos;
        // In a row with one large weight the gradients of its scores almost cancel, and the weights that are left may underflow.
        const bool cancels = spec.starts_with("sparse-sdpa") || spec.find("pooled") != std::string::npos;
        if (has_own_kernels(spec) && !spec.starts_with("favor") && !cancels && !rounds_features) {
          EXPECT_LE(agreement.excess_row_error, 2 * method->error_tolerance(dtype)) << agreement.max_row_error;
        }
      }
    }
  }
}

TEST_P(MethodContract, AnEmptyBatchGivesAnEmptyResult) {
  const auto& [spec, dtype, masking] = GetParam();
  const auto method = make_method(spec);
  const Shape shape{33, 33, 16, 24};
  const auto problem = problem_of(shape, dtype, masking, /*batch=*/0);
  for (const auto protocol : {Protocol::forward, Protocol::forward_backward}) {
    const auto inputs = inputs_of(*method, problem, protocol);
    const auto results = call_or_refuse(*method, problem, inputs, protocol);
    if (!results) continue;
    EXPECT_EQ(results->output.sizes(), (at::IntArrayRef{0, 2, 33, 24}));
    EXPECT_EQ(results->output.scalar_type(), dtype);
    if (protocol == Protocol::forward_backward) {
      EXPECT_EQ(results->gradients.v.sizes(), inputs.v.sizes());
    }
  }
}

TEST_P(MethodContract, ARowWithoutVisibleKeysGivesZeros) {
  const auto& [spec, dtype, masking] = GetParam();
  if (!has_key_lengths(masking)) return;
  const auto method = make_method(spec);
  for (const auto& shape : {Shape{1, 1, 8, 8}, Shape{33, 33, 16, 24}, Shape{150, 150, 32, 32}}) {
    SCOPED_TRACE(text_of(shape));
    const auto problem = problem_of(shape, dtype, masking);
    const auto inputs = inputs_of(*method, problem, Protocol::forward_backward);
    const auto results = call_or_refuse(*method, problem, inputs, Protocol::forward_backward);
    if (!results) continue;
    EXPECT_TRUE(results->output.select(0, 0).eq(0).all().item<bool>());
    for (const auto& [name, input, gradient] : gradients_in(*results)) {
      EXPECT_TRUE(all_finite(gradient)) << name;
      EXPECT_TRUE(gradient.select(0, 0).eq(0).all().item<bool>()) << name << " of an entry without visible keys";
    }
    EXPECT_FALSE(results->output.select(0, 1).eq(0).all().item<bool>());
  }
}

// Where there are more queries than keys, the first queries of a causal call see no key.
TEST_P(MethodContract, QueriesBeforeTheFirstKeyGiveZeros) {
  const auto& [spec, dtype, masking] = GetParam();
  const auto method = make_method(spec);
  if (!is_causal(masking) || !method->capabilities().causal_cross_attention) return;
  const auto problem = problem_of({9, 4, 8, 8}, dtype, masking);
  const auto inputs = inputs_of(*method, problem, Protocol::forward_backward);
  const auto results = call_or_refuse(*method, problem, inputs, Protocol::forward_backward);
  if (!results) return;
  EXPECT_TRUE(results->output.narrow(2, 0, 5).eq(0).all().item<bool>());
  EXPECT_TRUE(results->gradients.q.narrow(2, 0, 5).eq(0).all().item<bool>());
  EXPECT_FALSE(results->output.select(0, 1).narrow(1, 5, 4).eq(0).any().item<bool>());
}

// The keys and values at hidden positions, even NaN, change neither the output nor a gradient.
TEST_P(MethodContract, HiddenPositionsDoNotChangeResults) {
  const auto& [spec, dtype, masking] = GetParam();
  if (!has_key_lengths(masking)) return;
  const auto method = make_method(spec);
  for (const auto& shape : {Shape{33, 33, 16, 24}, Shape{150, 150, 32, 32}}) {
    SCOPED_TRACE(text_of(shape));
    const auto problem = problem_of(shape, dtype, masking, /*batch=*/3);
    auto inputs = inputs_of(*method, problem, Protocol::forward_backward);
    const auto expected = call_or_refuse(*method, problem, inputs, Protocol::forward_backward);
    if (!expected) continue;
    const auto hidden = *inputs.mask.hidden_keys(problem.key_len);
    for (const double value : {std::nan(""), double(INFINITY), 1e4}) {
      auto other = inputs;
      for (auto* x : {&other.k, &other.v})
        if (x->defined()) *x = x->detach().masked_fill(hidden, value).set_requires_grad(true);
      const auto results = call(*method, other, Protocol::forward_backward);
      EXPECT_TRUE(at::equal(results.output, expected->output)) << value;
      for (const auto& [name, input, gradient] : gradients_in(results)) {
        EXPECT_TRUE(all_finite(gradient)) << name << " for " << value;
        EXPECT_TRUE(at::equal(gradient, expected->gradients.*input)) << name << " for " << value;
      }
      for (const auto* gradient : {&results.gradients.k, &results.gradients.v})
        EXPECT_TRUE(!gradient->defined() || gradient->masked_select(hidden).eq(0).all().item<bool>());
    }
  }
}

// Whether PyTorch's matrix product lets a NaN in one row of its left factor reach another row of the product, as it does in
// bfloat16 on processors with AMX.
bool product_spreads_nan(at::ScalarType dtype) {
  auto left = at::ones({2, 150, 150}, dtype);
  left.select(1, 70).fill_(std::nan(""));
  return at::matmul(left, at::ones({2, 150, 24}, dtype)).isnan().any(-1).sum().item<int64_t>() != 2;
}

// A NaN at a visible position reaches all rows that see it, and no others.
TEST_P(MethodContract, ANaNReachesExactlyTheRowsThatSeeIt) {
  const auto& [spec, dtype, masking] = GetParam();
  const auto method = make_method(spec);
  // Methods whose inputs decide which keys a row sees have tests of their own for the rows that a NaN reaches.
  const auto can = method->capabilities();
  if (!is_causal(masking) || !can.nan_reaches_its_rows_only || !can.steps_are_rows_of_forward) return;
  const auto problem = problem_of({150, 150, 16, 24}, dtype, masking);
  const auto inputs = inputs_of(*method, problem, Protocol::forward);
  const auto clean = call_or_refuse(*method, problem, inputs, Protocol::forward);
  if (!clean) return;
  if (method->implementation() == "aten/materialised" && product_spreads_nan(inputs.q.scalar_type()))
    GTEST_SKIP() << "PyTorch's matrix product spreads a NaN here";
  constexpr int64_t kPlace = 70;  // visible in the second batch entry under either mask
  for (const auto member : {&Inputs::q, &Inputs::k, &Inputs::v}) {
    auto other = inputs;
    other.*member = (inputs.*member).clone();
    (other.*member).select(0, 1).select(1, kPlace).select(1, 3).fill_(std::nan(""));
    const auto output = call(*method, other, Protocol::forward).output;
    const auto reached = output.select(0, 1).isnan().any(-1);  // [H,N]
    EXPECT_TRUE(at::equal(output.select(0, 0), clean->output.select(0, 0)));
    if (member == &Inputs::q) {
      EXPECT_TRUE(reached.select(1, kPlace).all().item<bool>());
      EXPECT_EQ(reached.sum().item<int64_t>(), problem.heads);
    } else {
      EXPECT_FALSE(reached.slice(1, 0, kPlace).any().item<bool>());
      EXPECT_TRUE(reached.slice(1, kPlace).all().item<bool>());
    }
  }
}

TEST_P(MethodContract, StridesDoNotChangeResults) {
  const auto& [spec, dtype, masking] = GetParam();
  const auto method = make_method(spec);
  const Shape shape{kMaxLength / 2, kMaxLength / 2, 16, 24};
  const auto problem = problem_of(shape, dtype, masking);
  const auto inputs = inputs_of(*method, problem, Protocol::forward_backward);
  const auto expected = call_or_refuse(*method, problem, inputs, Protocol::forward_backward);
  if (!expected) return;
  using Layout = std::function<at::Tensor(const at::Tensor&)>;
  const std::pair<const char*, Layout> layouts[] = {
      {"[batch, length, heads, dim]", [](const at::Tensor& x) { return x.transpose(1, 2).contiguous().transpose(1, 2); }},
      {"[batch, heads, dim, length]", [](const at::Tensor& x) { return x.transpose(2, 3).contiguous().transpose(2, 3); }},
      {"every second element",
       [](const at::Tensor& x) {
         const auto wide = at::full({x.size(0), x.size(1), x.size(2), 2 * x.size(3)}, std::nan(""), x.options());
         wide.slice(3, 0, std::nullopt, 2).copy_(x);
         return wide.slice(3, 0, std::nullopt, 2);
       }},
      {"part of a longer tensor",
       [](const at::Tensor& x) {
         const auto longer = at::full({x.size(0), x.size(1) + 1, x.size(2) + 3, x.size(3)}, std::nan(""), x.options());
         longer.slice(1, 1).slice(2, 2, -1).copy_(x);
         return longer.slice(1, 1).slice(2, 2, -1);
       }},
  };
  for (const auto& [name, lay_out] : layouts) {
    SCOPED_TRACE(name);
    auto other = inputs;
    for (const auto& input : method->inputs())
      if (auto& x = other.*input.member; !x.defined()) continue;
      else if (x.dim() == 4) x = lay_out(x.detach()).set_requires_grad(true);
      else x = at::stack({x, x.detach()}, -1).select(-1, 0).detach().set_requires_grad(true);
    other.grad_output = lay_out(inputs.grad_output);
    ASSERT_FALSE(other.q.is_contiguous());
    ASSERT_TRUE(at::equal(other.q, inputs.q));
    expect_close(call(*method, other, Protocol::forward_backward), *expected, method->error_tolerance(dtype));
  }
}

// All heads share the keys and values of one head, and all entries share one gradient, as expand() makes them, with strides of
// zero.
TEST_P(MethodContract, ExpandedInputsAgreeWithTheReference) {
  const auto& [spec, dtype, masking] = GetParam();
  const auto method = make_method(spec);
  const Shape shape{20, 20, 16, 16};
  const auto problem = problem_of(shape, dtype, masking);
  auto inputs = inputs_of(*method, problem, Protocol::forward_backward);
  const auto shared = [](const at::Tensor& x) { return x.detach().slice(1, 0, 1).expand(x.sizes()).set_requires_grad(true); };
  if (inputs.k.defined()) inputs.k = shared(inputs.k);
  inputs.v = shared(inputs.v);
  inputs.grad_output = at::ones({}, inputs.q.options()).expand(inputs.grad_output.sizes());
  const auto results = call_or_refuse(*method, problem, inputs, Protocol::forward_backward);
  if (!results) return;
  const auto agreement = compare(*method, inputs, *results, Selection::everything(problem));
  EXPECT_TRUE(agreement.within(method->error_tolerance(dtype))) << agreement.worst << ": " << agreement.max_rel_error;
}

TEST_P(MethodContract, GradientsOfAnySubsetOfTheInputs) {
  const auto& [spec, dtype, masking] = GetParam();
  const auto method = make_method(spec);
  const auto problem = problem_of({33, 33, 16, 24}, dtype, masking);
  const auto inputs = inputs_of(*method, problem, Protocol::forward_backward);
  const auto expected = call_or_refuse(*method, problem, inputs, Protocol::forward_backward);
  if (!expected) return;
  const auto all = gradients_in(*expected);
  for (unsigned wanted = 0; wanted < 1u << all.size(); ++wanted) {
    SCOPED_TRACE("inputs that need gradients: " + std::to_string(wanted));
    Inputs some = inputs;
    std::vector<attn::InputSpec> needed;
    for (size_t i = 0; i < all.size(); ++i) {
      auto& x = some.*all[i].input;
      x = x.detach().clone().set_requires_grad((wanted >> i) & 1);
      if ((wanted >> i) & 1) needed.push_back(find_input(all[i].name.substr(std::string("gradient of ").size())));
    }
    const auto output = method->forward(some);
    expect_close(output.detach(), expected->output, method->error_tolerance(dtype), "output");
    if (wanted == 0) {
      EXPECT_FALSE(output.requires_grad());
      continue;
    }
    if (!output.requires_grad()) {  // a method may ignore some inputs, as LSH attention ignores k
      for (const auto& input : needed) EXPECT_TRUE((expected->gradients.*input.member).eq(0).all().item<bool>()) << input.name;
      continue;
    }
    const auto gradients = attnbench::gradients_of(output, inputs.grad_output, some, needed);
    for (const auto& input : needed)
      expect_close(gradients.*input.member, expected->gradients.*input.member, method->error_tolerance(dtype),
                   std::string("gradient of ") + input.name);
  }
}

TEST_P(MethodContract, InputsAreNotChanged) {
  const auto& [spec, dtype, masking] = GetParam();
  const auto method = make_method(spec);
  const auto problem = problem_of({33, 33, 16, 24}, dtype, masking);
  const auto inputs = inputs_of(*method, problem, Protocol::forward_backward),
             same = inputs_of(*method, problem, Protocol::forward_backward);
  if (!call_or_refuse(*method, problem, inputs, Protocol::forward_backward)) return;
  for (const auto& input : method->inputs()) {
    const auto& x = inputs.*input.member;
    EXPECT_TRUE(!x.defined() || at::equal(x, same.*input.member)) << input.name;
  }
  EXPECT_TRUE(at::equal(inputs.grad_output, same.grad_output));
  if (same.mask.key_lengths) {
    EXPECT_TRUE(at::equal(*inputs.mask.key_lengths, *same.mask.key_lengths));
  }
}

class EveryMethod : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Registry, EveryMethod, testing::ValuesIn(method_specs()),
                         [](const auto& tested) { return identifier(tested.param); });

// Compares gradients with (f(x+h) − f(x−h)) / 2h for every entry of every input. This depends neither on the reference nor on
// autograd.
TEST_P(EveryMethod, GradientsAgreeWithFiniteDifferences) {
  const auto method = make_method(GetParam());
  constexpr double h = 1e-5;
  for (const auto masking : kMaskings) {
    for (const auto& shape : {Shape{5, 5, 3, 2}, Shape{4, 6, 2, 3}}) {
      SCOPED_TRACE(std::string(name_of(masking)) + " " + text_of(shape));
      const auto problem = problem_of(shape, at::kDouble, masking, 3, 1);
      if (expected_refusal(*method, problem, Protocol::forward_backward)) continue;
      const auto inputs = inputs_of(*method, problem, Protocol::forward_backward);
      const auto results = call(*method, inputs, Protocol::forward_backward);
      const at::NoGradGuard no_grad;
      const auto loss = [&](const CallInputs& x) {
        return (call(*method, x, Protocol::forward).output * inputs.grad_output).sum().item<double>();
      };
      double scale = 0;
      for (const auto& gradient : gradients_in(results)) scale = std::max(scale, gradient.tensor.abs().max().item<double>());
      for (const auto& [name, input, of_input] : gradients_in(results)) {
        auto moved = inputs;
        const auto x = (moved.*input = (inputs.*input).detach().clone());
        const auto flat = x.view(-1);
        const auto gradient = of_input.reshape(-1);
        for (int64_t e = 0; e < flat.numel(); ++e) {
          const auto value = flat[e].item<double>();
          flat[e].fill_(value + h);
          const auto above = loss(moved);
          flat[e].fill_(value - h);
          const auto below = loss(moved);
          flat[e].fill_(value);
          ASSERT_NEAR(gradient[e].item<double>(), (above - below) / (2 * h), 1e-7 * scale) << name << " entry " << e;
        }
      }
    }
  }
}

TEST_P(EveryMethod, RefusesWhatItDoesNotSupport) {
  const auto method = make_method(GetParam());
  const auto can = method->capabilities();
  const Shape shape{8, 8, 4, 4};
  const auto refusal = [&](const Problem& problem, Protocol protocol) {
    const auto reason = method->why_unsupported(problem, protocol);
    EXPECT_TRUE(reason) << "capabilities and why_unsupported disagree";
    const auto inputs = inputs_of(*method, problem, protocol);
    const auto message = message_of<c10::ValueError>([&] { call(*method, inputs, protocol); });
    EXPECT_CONTAINS(message, reason.value_or("a reason"));
    EXPECT_CONTAINS(message, GetParam());
  };
  if (!can.full) refusal(problem_of(shape, at::kFloat, Masking::none), Protocol::forward);
  if (!can.causal) refusal(problem_of(shape, at::kFloat, Masking::causal), Protocol::forward);
  if (!can.key_lengths) refusal(problem_of(shape, at::kFloat, Masking::key_lengths), Protocol::forward);
  if (!can.cross_attention) refusal(problem_of({8, 9, 4, 4}, at::kFloat, Masking::none), Protocol::forward);
  if (can.causal && !can.causal_cross_attention)
    refusal(problem_of({8, 9, 4, 4}, at::kFloat, Masking::causal), Protocol::forward);
  if (can.shared_heads == SharedHeads::no) {
    auto shared = problem_of(shape, at::kFloat, can.full ? Masking::none : Masking::causal, 1, 4);
    shared.kv_heads = 2;
    refusal(shared, Protocol::forward);
  }
  if (!can.decoding) {
    EXPECT_TRUE(method->why_unsupported(problem_of(shape, at::kFloat, Masking::causal), Protocol::decode));
  }
  if (!can.gradients) refusal(problem_of(shape, at::kFloat, Masking::none), Protocol::forward_backward);
  for (const auto dtype : {at::kHalf, at::kFloat, at::kDouble, at::kBFloat16})
    if (std::find(can.dtypes.begin(), can.dtypes.end(), dtype) == can.dtypes.end())
      refusal(problem_of(shape, dtype, Masking::none), Protocol::forward);
  const auto whole = at::ones({1, 1, 4, 4}, at::kLong);
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { method->forward(whole, whole, whole); }),
                  "q is Long, expected a floating dtype");
  auto elsewhere = problem_of(shape, at::kFloat, Masking::none);
  elsewhere.device = c10::DeviceType::XLA;
  EXPECT_EQ(method->why_unsupported(elsewhere, Protocol::forward), GetParam() + " does not run on xla");
}

TEST_P(EveryMethod, InvalidArgumentsAreNamed) {
  const auto method = make_method(GetParam());
  const auto tensor = [](std::vector<int64_t> shape, at::ScalarType dtype = at::kFloat) { return at::ones(shape, dtype); };
  const auto q = tensor({2, 3, 5, 4}), k = tensor({2, 3, 7, 4}), v = tensor({2, 3, 7, 6}), square = tensor({2, 3, 5, 4});
  const auto refusal = [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, const Mask& mask = {}) {
    return message_of<c10::ValueError>([&] { method->forward(a, b, c, mask); });
  };
  EXPECT_CONTAINS(refusal({}, k, v), "q is not defined");
  if (!GetParam().starts_with("lsh")) {
    EXPECT_CONTAINS(refusal(q, {}, v), "k is not defined");
  }
  EXPECT_CONTAINS(refusal(q, k, {}), "v is not defined");
  EXPECT_CONTAINS(refusal(tensor({3, 5, 4}), k, v), "q has shape [3, 5, 4], expected [batch, heads, length, dim]");
  EXPECT_CONTAINS(refusal(q, tensor({2, 3, 7, 4, 1}), v), "k has shape [2, 3, 7, 4, 1], expected");
  EXPECT_CONTAINS(refusal(q, k, tensor({7})), "v has shape [7], expected");
  EXPECT_CONTAINS(refusal(q, tensor({1, 3, 7, 4}), v), "k has batch 1, expected 2 as in q");
  EXPECT_CONTAINS(refusal(q, tensor({2, 2, 7, 4}), v), "kv_heads = 2, expected a divisor of 3");
  EXPECT_CONTAINS(refusal(q, k, tensor({2, 2, 7, 6})), "value_heads = 2, expected a divisor of 3");
  EXPECT_CONTAINS(refusal(q, k, tensor({2, 0, 7, 6})), "v has heads 0, expected at least 1");
  EXPECT_CONTAINS(refusal(q, tensor({2, 3, 7, 8}), v), "k has dim 8, expected 4 as in q");
  EXPECT_CONTAINS(refusal(q, k, tensor({2, 3, 9, 6})), "v has length 9, expected 7 as in k");
  EXPECT_CONTAINS(refusal(tensor({2, 3, 0, 4}), k, v), "query_len = 0, expected at least 1");
  EXPECT_CONTAINS(refusal(tensor({2, 0, 5, 4}), tensor({2, 0, 7, 4}), tensor({2, 0, 7, 6})), "heads = 0, expected at least 1");
  EXPECT_CONTAINS(refusal(q, tensor({2, 3, 0, 4}), tensor({2, 3, 0, 6})), "key_len = 0, expected at least 1");
  EXPECT_CONTAINS(refusal(q, k, tensor({2, 3, 7, 0})), "value_dim = 0, expected at least 1");
  EXPECT_CONTAINS(refusal(q, k.to(at::kDouble), v), "k is float64 but q is float32");
  EXPECT_CONTAINS(refusal(q, k, v.to(at::kBFloat16)), "v is bfloat16 but q is float32");
  EXPECT_CONTAINS(refusal(q, k.to(at::kMeta), v), "k is on meta but q is on cpu");
  EXPECT_CONTAINS(refusal(q, k, v.to(at::kMeta)), "v is on meta but q is on cpu");

  const auto lengths = [&](const at::Tensor& key_lengths) { return refusal(square, square, square, {false, key_lengths}); };
  EXPECT_CONTAINS(lengths(at::tensor({3, 6}, at::kLong)), "key_lengths holds 6, expected at most the key length 5");
  EXPECT_CONTAINS(lengths(at::tensor({-1, 3}, at::kLong)), "key_lengths holds -1, expected at least 0");
  EXPECT_CONTAINS(lengths(at::tensor({3, 3}, at::kInt)), "key_lengths is Int, expected int64");
  EXPECT_CONTAINS(lengths(at::tensor({3.0, 3.0})), "key_lengths is Double, expected int64");
  EXPECT_CONTAINS(lengths(at::tensor({3, 3, 3}, at::kLong)), "key_lengths has shape [3], expected [batch] = [2]");
  EXPECT_CONTAINS(lengths(at::full({2, 1}, 3, at::kLong)), "key_lengths has shape [2, 1], expected [batch] = [2]");
  EXPECT_CONTAINS(lengths(at::full({}, 3, at::kLong)), "key_lengths has shape [], expected [batch] = [2]");
  EXPECT_CONTAINS(lengths(at::full({2}, 3, at::kLong).to(at::kMeta)), "key_lengths is on meta but q is on cpu");
  EXPECT_CONTAINS(lengths(at::Tensor()), "key_lengths is ");
}

TEST_P(EveryMethod, CostsArePlausible) {
  const auto method = make_method(GetParam());
  for (const auto masking : kMaskings) {
    for (const auto dtype : kDtypes) {
      auto problem = problem_of({512, 512, 64, 64}, dtype, masking);
      if (method->why_unsupported(problem, Protocol::forward_backward)) continue;
      SCOPED_TRACE(std::string(name_of(masking)) + " " + dtype_name(dtype));
      auto longer = problem;
      longer.query_len = longer.key_len = 1024;
      const auto forward = method->cost(problem, Protocol::forward), backward = method->cost(problem, Protocol::forward_backward);
      const auto more = method->cost(longer, Protocol::forward);
      double inputs = 0;
      for (const auto& spec : method->inputs())
        if (spec.is_part_of(problem)) inputs += spec.bytes(problem);
      EXPECT_GE(forward.min_bytes, inputs + problem.output_bytes());
      EXPECT_GE(forward.peak_bytes, inputs + problem.output_bytes());
      EXPECT_GE(forward.flops, 2 * double(problem.output_bytes() / problem.element_bytes()));
      EXPECT_GT(backward.flops, forward.flops);
      EXPECT_GT(backward.min_bytes, forward.min_bytes);
      EXPECT_GE(backward.peak_bytes, 2 * inputs + problem.output_bytes());
      EXPECT_GT(more.flops, 1.5 * forward.flops);
      EXPECT_LT(more.flops, 5 * forward.flops);
      EXPECT_GT(more.peak_bytes, forward.peak_bytes);
    }
  }
}

// The driver skips cases whose predicted peak does not fit into memory. If the prediction is too low, the machine runs out of
// memory. If it is too high, a figure lacks a point that could have been measured.
TEST_P(EveryMethod, PredictedPeakIsNearTheMeasured) {
  if (GetParam().find("chunk=7") != std::string::npos || GetParam().find("implementation=") != std::string::npos)
    GTEST_SKIP() << "slow, and predicted by the same formula as the method without this option";
  const double scratch =
      double(2 << 20) * at::get_num_threads();  // bytes of the kernels' scratch memory, which the prediction leaves out
  const auto method = make_method(GetParam());
  for (const auto masking : kMaskings) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      for (const auto protocol : {Protocol::forward, Protocol::forward_backward}) {
        for (const auto& shape : {Shape{1024, 1024, 64, 64}, Shape{1024, 1024, 32, 96}}) {
          if (shape.head_dim == 32 && has_key_lengths(masking)) continue;  // the masks add the same to both
          const auto problem = problem_of(shape, dtype, masking, 1, 4);
          if (method->why_unsupported(problem, protocol)) continue;
          // What the method caches at its first call is not counted. It does not depend on the length.
          const auto few = problem_of({64, 64, shape.head_dim, shape.value_dim}, dtype, masking, 1, 4);
          call(*method, make_inputs(*method, few, protocol, 1), protocol);
          const auto inputs = make_inputs(*method, problem, protocol, 1);
          auto peak = double(attnbench::bytes_of(inputs));
          {
            const attnbench::AllocationCounter counter;
            call(*method, inputs, protocol);
            peak += double(counter.peak_bytes());
          }
          const auto predicted = method->cost(problem, protocol).peak_bytes;
          SCOPED_TRACE(std::string(name_of(masking)) + " " + dtype_name(dtype) + " " + text_of(shape) +
                       (protocol == Protocol::forward ? " forward" : " backward"));
          EXPECT_GT(predicted + scratch, 0.8 * peak) << predicted / peak;
          EXPECT_LT(predicted, 1.5 * peak) << predicted / peak;
        }
      }
    }
  }
}

TEST_P(EveryMethod, ReportsTheDiagnosticsThatItDeclares) {
  const auto method = make_method(GetParam());
  std::set<std::string> declared, reported;
  for (const auto& spec : method->diagnostic_specs()) {
    EXPECT_TRUE(declared.insert(spec.name).second) << spec.name << " is declared twice";
    EXPECT_FALSE(spec.description.empty()) << spec.name;
  }
  for (const auto masking : kMaskings) {
    const auto problem = problem_of({33, 33, 16, 24}, at::kFloat, masking);
    if (expected_refusal(*method, problem, Protocol::forward)) continue;
    const auto inputs = inputs_of(*method, problem, Protocol::forward);
    const auto in_float64 = converted(inputs, [](const at::Tensor& x) { return x.to(at::kDouble); });
    const auto rows = at::arange(problem.query_len, at::kLong);
    for (const auto& [name, value] : method->diagnostics(in_float64, rows)) reported.insert(name);
  }
  EXPECT_EQ(reported, declared);
}

TEST_P(EveryMethod, LabelIsTheTextThatItWasMadeFrom) { EXPECT_EQ(make_method(GetParam())->label(), GetParam()); }

}  // namespace
}  // namespace attn
