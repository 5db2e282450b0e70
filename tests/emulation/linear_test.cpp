// The CUDA kernels of linear attention, emulated, against the composition in float64: every element type and dimension, masks,
// splits, gradients, orders of threads.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>

#include "attn/kernels/cuda/linear_launch.cuh"
#include "attn/kernels/cuda/linear_plain.cuh"
#include "attn/linear_attention.h"
#include "tests/emulation/run_here.h"
#include "tests/method_helpers.h"

namespace attn::cuda {
namespace {

using at::Tensor;

struct Emulated {
  Tensor q, k, v, gradient;
  bool causal;
  std::optional<Tensor> key_lengths;
  LinearMapKind map;
  int64_t splits;

  // The call, its results in `results`, its normalizers in `kept`. What is not written stays NaN.
  LinearCall call(Results& results, std::vector<Tensor>& kept) const {
    LinearCall c{};
    c.batch = q.size(0), c.heads = q.size(1), c.query_len = q.size(2), c.key_len = k.size(2);
    c.head_dim = int(q.size(3)), c.value_dim = int(v.size(3)), c.causal = causal, c.map = map, c.epsilon = 1e-6f;
    if (key_lengths) c.key_lengths = key_lengths->const_data_ptr<int64_t>();
    const auto longest = std::max(c.query_len, c.key_len);
    c.split_len = ((longest + splits - 1) / splits + 63) / 64 * 64;
    c.splits = (longest + c.split_len - 1) / c.split_len;
    const auto like = [](const Tensor& x) { return at::full(x.sizes(), NAN, x.options()); };
    results.output = at::full({q.size(0), q.size(1), q.size(2), v.size(3)}, NAN, q.options());
    results.q_gradient = like(q), results.k_gradient = like(k), results.v_gradient = like(v);
    c.q = rows_of(q), c.k = rows_of(k), c.v = rows_of(v), c.output = rows_of(results.output), c.gradient = rows_of(gradient);
    c.q_gradient = rows_of(results.q_gradient), c.k_gradient = rows_of(results.k_gradient);
    c.v_gradient = rows_of(results.v_gradient);
    for (int i = 0; i < 2; ++i) kept.push_back(at::full({q.size(0), q.size(1), q.size(2)}, NAN, q.options().dtype(sum_dtype())));
    c.normalizer = kept[0].data_ptr(), c.normalizer_gradient = kept[1].data_ptr();
    return c;
  }
  at::ScalarType sum_dtype() const { return q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

  template <class S>
  Results run() const {
    Results results;
    std::vector<Tensor> kept;
    auto c = call(results, kept);
    if (!causal || c.splits > 1) {
      for (int i = 0; i < 2; ++i)
        kept.push_back(at::full({c.batch * c.heads, c.splits, state_numbers(S::kDim)}, NAN, q.options().dtype(at::kFloat)));
      c.key_states = kept[2].data_ptr<float>(), c.query_states = kept[3].data_ptr<float>();
    }
    const RunHere launch;
    LinearLaunch<S, RunHere> linear(c, launch);
    linear.forward();
    linear.backward();
    return results;
  }
};

// Of the plain kernels.
template <class E, class T>
Results run_plain(const Emulated& call, int);

struct Kind {
  const char* name;
  at::ScalarType dtype;
  double tolerance;
  Results (*run)(const Emulated&, int dim);
};

template <class E, Precision kPrecision>
Results run_kind(const Emulated& call, int dim) {
  switch (dim) {
    case 16: return call.run<TileShape<E, kPrecision, 16>>();
    case 32: return call.run<TileShape<E, kPrecision, 32>>();
    case 64: return call.run<TileShape<E, kPrecision, 64>>();
    default: return call.run<TileShape<E, kPrecision, 128>>();
  }
}
template <class E, class T>
Results run_plain(const Emulated& emulated, int) {
  Results results;
  std::vector<Tensor> kept;
  const auto c = emulated.call(results, kept);
  const RunHere launch;
  const auto states = [&] {
    kept.push_back(at::zeros({c.batch * c.heads, int64_t(c.head_dim) * c.value_dim + c.head_dim}, kept[0].options()));
    return static_cast<T*>(kept.back().data_ptr());
  };
  constexpr int kThreads = 96;
  const auto shared = PlainHead<E, T>::shared_bytes(c, kThreads);
  launch(plain_forward<E, T>, c.batch * c.heads, kThreads, shared, c, states());
  launch(plain_backward_queries<E, T>, c.batch * c.heads, kThreads, shared, c, states());
  launch(plain_backward_keys<E, T>, c.batch * c.heads, kThreads, shared, c, states());
  return results;
}

const Kind kKinds[] = {{"bfloat16", at::kBFloat16, 4e-2, run_kind<BFloat16, Precision::half_precision>},
                       {"float16", at::kHalf, 1e-2, run_kind<Half, Precision::tf32>},
                       {"float32", at::kFloat, 1e-4, run_kind<float, Precision::tf32_three>},
                       {"tf32", at::kFloat, 1e-2, run_kind<float, Precision::tf32>},
                       {"plain_float64", at::kDouble, 1e-10, run_plain<double, double>},
                       {"plain_bfloat16", at::kBFloat16, 4e-2, run_plain<BFloat16, float>}};

class EmulatedLinear : public testing::TestWithParam<Kind> {
 protected:
  static void check(const Shape& shape, Masking masking, const std::string& map, int64_t splits, int64_t batch = 2,
                    int64_t heads = 2) {
    const auto& kind = GetParam();
    SCOPED_TRACE(text_of(shape) + " " + name_of(masking) + " " + map + ", splits " + std::to_string(splits));
    const auto inputs = inputs_of(problem_of(shape, kind.dtype, masking, batch, heads), Protocol::forward_backward);
    Emulated call{inputs.q.detach(),
                  inputs.k.detach(),
                  inputs.v.detach(),
                  inputs.output_gradient,
                  is_causal(masking),
                  inputs.mask.key_lengths,
                  map == "relu"  ? LinearMapKind::relu
                  : map == "elu" ? LinearMapKind::elu
                                 : LinearMapKind::elu01,
                  splits};
    const auto results = kind.run(call, padded_dim(shape.head_dim, shape.value_dim));
    Results expected;
    std::vector<Tensor> leaves;
    for (const auto* x : {&inputs.q, &inputs.k, &inputs.v}) leaves.push_back(x->detach().to(at::kDouble).set_requires_grad(true));
    expected.output = linear_attention(leaves[0], leaves[1], leaves[2],
                                       {is_causal(masking), inputs.mask.key_lengths, map, 1e-6, {}, 64, "composed"});
    const auto gradients = torch::autograd::grad({expected.output}, leaves, {inputs.output_gradient.to(at::kDouble)});
    expected.q_gradient = gradients[0], expected.k_gradient = gradients[1], expected.v_gradient = gradients[2];
    expect_close(results, expected, kind.tolerance);
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, EmulatedLinear, testing::ValuesIn(kKinds), [](const auto& tested) { return tested.param.name; });

TEST_P(EmulatedLinear, EveryMask) {
  for (const auto masking : kMaskings)
    for (const int64_t splits : {1, 3}) check({200, 200, 16, 16}, masking, "elu", splits);
}

TEST_P(EmulatedLinear, EveryDimension) {
  for (const auto& shape : {Shape{70, 70, 32, 32}, Shape{130, 130, 64, 64}, Shape{70, 70, 128, 128}, Shape{70, 70, 8, 24},
                            Shape{70, 70, 64, 16}, Shape{70, 70, 40, 96}})
    check(shape, Masking::causal_and_key_lengths, "elu", 2, 1, 2);
}

TEST_P(EmulatedLinear, LengthsThatEndAnywhere) {
  for (const int64_t length : {1, 15, 16, 17, 63, 64, 65, 129}) {
    check({length, length, 16, 16}, Masking::causal, "elu", 2, 1, 1);
    check({length, 70, 16, 16}, Masking::key_lengths, "elu", 2, 1, 1);
  }
}

TEST_P(EmulatedLinear, EveryMap) {
  for (const auto* map : {"elu", "elu0.1", "relu"}) check({100, 100, 16, 32}, Masking::causal, map, 1);
}

TEST_P(EmulatedLinear, EveryOrderOfThreads) {
  for (const auto order : {emulation::ThreadOrder::backward, emulation::ThreadOrder::shuffled}) {
    emulation::set_thread_order(order, 5);
    check({150, 150, 32, 32}, Masking::causal_and_key_lengths, "elu", 2);
    check({150, 90, 32, 32}, Masking::none, "elu", 2);
  }
  emulation::set_thread_order(emulation::ThreadOrder::forward);
}

}  // namespace
}  // namespace attn::cuda
