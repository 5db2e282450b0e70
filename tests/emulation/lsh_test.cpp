// The CUDA kernels of LSH attention, emulated, against the composition in float64: the order of positions exactly, outputs and
// gradients for every element type, profiles, masks, partial chunks, orders of threads.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>

#include "attn/kernels/cuda/lsh_launch.cuh"
#include "attn/lsh_attention.h"
#include "tests/emulation/run_here.h"
#include "tests/method_helpers.h"

namespace attn::cuda {
namespace {

using at::Tensor;

struct Setting {
  int64_t length, dim, value_dim, rounds, chunk, buckets;
  bool causal = false, trax = true;
  std::optional<std::vector<int64_t>> key_lengths = std::nullopt;  // of two batch entries
};

std::string text_of(const Setting& s) {
  return "N=" + std::to_string(s.length) + " D=" + std::to_string(s.dim) + " M=" + std::to_string(s.value_dim) +
         " rounds=" + std::to_string(s.rounds) + " chunk=" + std::to_string(s.chunk) + " buckets=" + std::to_string(s.buckets) +
         (s.causal ? " causal" : "") + (s.trax ? " trax" : " fast-transformers") + (s.key_lengths ? " key lengths" : "");
}

struct Inputs {
  Tensor qk, v, gradient, rotations, key_lengths;
  std::optional<std::vector<int64_t>> factors;
};

Inputs inputs_for(const Setting& s, at::ScalarType dtype) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(11);
  const auto normal = [&](std::vector<int64_t> shape) {
    return at::randn(shape, generator, at::TensorOptions(at::kDouble)).to(dtype);
  };
  Inputs in{
      normal({2, 2, s.length, s.dim}), normal({2, 2, s.length, s.value_dim}), normal({2, 2, s.length, s.value_dim}), {}, {}, {}};
  in.rotations = draw_rotations(s.dim, s.rounds, s.buckets, 5, at::kCPU);
  if (const auto factors = bucket_factors_of(s.buckets)) in.factors = *factors;
  if (s.key_lengths) in.key_lengths = at::tensor(*s.key_lengths, at::kLong);
  return in;
}

struct Result {
  Tensor output, order, log_sum_exp, qk_gradient, v_gradient;
};

template <class E, Precision kPrecision, int kDim>
Result emulated(const Setting& s, const Inputs& in) {
  using S = TileShape<E, kPrecision, kDim>;
  Result r;
  LshCall c{};
  c.batch = 2, c.heads = 2, c.length = s.length, c.rounds = s.rounds, c.chunk = std::min(s.chunk, s.length);
  c.chunks = (c.length + c.chunk - 1) / c.chunk, c.head_dim = int(s.dim), c.value_dim = int(s.value_dim);
  c.causal = s.causal, c.trax = s.trax;
  if (s.key_lengths) c.key_lengths = in.key_lengths.const_data_ptr<int64_t>();
  const auto filled = [](std::vector<int64_t> shape, at::ScalarType dtype, double value) {
    return at::full(shape, value, at::TensorOptions(dtype));
  };
  r.order = filled({2, 2, s.rounds, s.length}, at::kLong, -1),
  r.log_sum_exp = filled({2, 2, s.rounds, s.length}, at::kDouble, NAN);
  r.output = at::full_like(in.v, NAN), r.qk_gradient = at::full_like(in.qk, NAN), r.v_gradient = at::full_like(in.v, NAN);
  const Tensor sums = filled({4, s.length, s.value_dim}, at::kFloat, NAN), merged = filled({4, s.length, 2}, at::kDouble, NAN);
  c.qk = rows_of(in.qk), c.v = rows_of(in.v), c.output = rows_of(r.output), c.gradient = rows_of(in.gradient);
  c.qk_gradient = rows_of(r.qk_gradient), c.v_gradient = rows_of(r.v_gradient);
  c.order = r.order.data_ptr<int64_t>(), c.log_sum_exp = r.log_sum_exp.data_ptr<double>();
  c.sums = sums.data_ptr<float>(), c.merged = merged.data_ptr<double>();

  const auto exact = in.rotations.to(at::kDouble).permute({1, 0, 2}).contiguous(), rounded = exact.to(at::kFloat);
  const Tensor longest = at::linalg_vector_norm(exact, 2, at::IntArrayRef{1}).max().to(at::kFloat);
  const LshRotations rotations{exact.const_data_ptr<double>(), rounded.const_data_ptr<float>(),
                               int(in.factors ? (*in.factors)[0] / 2 : exact.size(2)), int(in.factors ? (*in.factors)[1] / 2 : 0),
                               longest.const_data_ptr<float>()};
  std::vector<uint64_t> keys(size_t(r.order.numel())), sorted(keys.size());
  sort_positions<E>(c, rotations, keys.data(), sorted.data(), RunHere{}, SortHere{});
  run_lsh_forward<S>(c, RunHere{});

  const auto of_query = at::zeros({4, s.length, s.dim}), of_key = at::zeros_like(of_query),
             of_value = at::zeros({4, s.length, s.value_dim});
  const auto shares = (s.trax ? r.log_sum_exp.softmax(2) : at::full_like(r.log_sum_exp, 1.0 / double(s.rounds)))
                          .masked_fill(r.log_sum_exp == -INFINITY, 0)
                          .to(at::kFloat);
  c.shares = shares.const_data_ptr<float>();
  c.of_query = of_query.data_ptr<float>(), c.of_key = of_key.data_ptr<float>(), c.of_value = of_value.data_ptr<float>();
  run_lsh_backward<S>(c, RunHere{});
  return r;
}

struct Kind {
  const char* name;
  at::ScalarType dtype;
  double tolerance;
  Result (*run)(const Setting&, const Inputs&);
};
template <class E, Precision kPrecision>
Result run_kind(const Setting& s, const Inputs& in) {
  const auto dim = std::max(s.dim, s.value_dim);
  if (dim <= 16) return emulated<E, kPrecision, 16>(s, in);
  if (dim <= 32) return emulated<E, kPrecision, 32>(s, in);
  return dim <= 64 ? emulated<E, kPrecision, 64>(s, in) : emulated<E, kPrecision, 128>(s, in);
}
const Kind kKinds[] = {{"bfloat16", at::kBFloat16, 4e-2, run_kind<BFloat16, Precision::half_precision>},
                       {"float16", at::kHalf, 1e-2, run_kind<Half, Precision::tf32>},
                       {"float32", at::kFloat, 1e-4, run_kind<float, Precision::tf32_three>}};

class EmulatedLsh : public testing::TestWithParam<Kind> {
 protected:
  static void check(const Setting& s) {
    SCOPED_TRACE(text_of(s));
    const auto& kind = GetParam();
    const auto in = inputs_for(s, kind.dtype);
    const auto result = kind.run(s, in);
    Result expected;
    const auto qk = in.qk.to(at::kDouble).set_requires_grad(true), v = in.v.to(at::kDouble).set_requires_grad(true);
    const auto lengths = s.key_lengths ? std::optional(in.key_lengths) : std::nullopt;
    const auto factors = in.factors ? at::OptionalIntArrayRef(*in.factors) : at::OptionalIntArrayRef();
    expected.output =
        lsh_attention(qk, v, in.rotations, s.chunk, s.causal, lengths, s.trax ? kTrax : kFastTransformers, factors, "composed");
    auto buckets = lsh_buckets(in.qk, in.rotations, factors);
    if (lengths)
      buckets =
          buckets.masked_fill(at::arange(s.length) >= in.key_lengths.view({2, 1, 1, 1}), std::numeric_limits<int64_t>::max());
    EXPECT_TRUE(at::equal(result.order, at::argsort(buckets, /*stable=*/true, /*dim=*/3)));
    const auto gradients = torch::autograd::grad({expected.output}, {qk, v}, {in.gradient.to(at::kDouble)});
    const auto close = [&](const char* what, const Tensor& found, const Tensor& wanted) {
      const auto error = largest_relative_difference(found, wanted);
      EXPECT_LT(error, kind.tolerance) << what;
    };
    close("output", result.output, expected.output);
    close("gradient of qk", result.qk_gradient, gradients[0]);
    close("gradient of v", result.v_gradient, gradients[1]);
  }
  // Beside the largest there is, or beside 1 where that is tiny: a lone position's gradient is zero.
  static double largest_relative_difference(const Tensor& found, const Tensor& wanted) {
    const auto difference = (found.to(at::kDouble) - wanted).abs().max().item<double>();
    const auto largest = wanted.abs().max().item<double>();
    return std::isnan(difference) ? INFINITY : difference / (largest > 1e-3 ? largest : 1);
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, EmulatedLsh, testing::ValuesIn(kKinds), [](const auto& tested) { return tested.param.name; });

TEST_P(EmulatedLsh, ProfilesMasksAndRounds) {
  for (const bool trax : {true, false})
    for (const bool causal : {false, true})
      for (const int64_t rounds : {1, 3}) {
        check({200, 16, 16, rounds, 64, 4, causal, trax});
        check({150, 16, 16, rounds, 32, 6, causal, trax, std::vector<int64_t>{150, 37}});
      }
}

TEST_P(EmulatedLsh, DimensionsAndChunks) {
  check({130, 64, 64, 1, 64, 4, true});
  check({70, 32, 48, 2, 64, 2, true});
  check({130, 16, 8, 2, 100, 4, true});
  check({90, 16, 16, 1, 8, 16, true});
  check({64, 128, 128, 1, 64, 2, true});
}

TEST_P(EmulatedLsh, FewPositionsAndManyBuckets) {
  check({1, 16, 16, 2, 64, 2, true});
  check({5, 16, 16, 1, 2, 4, false});
  check({300, 16, 16, 2, 64, 132, true});
}

TEST_P(EmulatedLsh, EveryOrderOfThreads) {
  for (const auto order : {emulation::ThreadOrder::backward, emulation::ThreadOrder::shuffled}) {
    emulation::set_thread_order(order, 9);
    check({150, 16, 16, 2, 64, 4, true});
  }
  emulation::set_thread_order(emulation::ThreadOrder::forward);
}

TEST_P(EmulatedLsh, BucketsAreThoseOfFloat64) { check({1000, 8, 8, 2, 64, 64, false}); }

}  // namespace
}  // namespace attn::cuda
