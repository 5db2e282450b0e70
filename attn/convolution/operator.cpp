// The PyTorch operators of the causal convolution: attn::causal_convolution, which is differentiable once, and
// attn::causal_convolution_step for decoding. attn/convolution/implementation.h says what they compute.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include <algorithm>
#include <tuple>

#include "attn/check_tensor.h"
#include "attn/convolution/composed.h"
#include "attn/convolution/implementation.h"
#include "attn/operators/declaration.h"
#include "attn/without_autocast.h"

namespace attn {
namespace {

using at::Tensor;

// ---------------------------------------------------------------- arguments

struct ConvolutionCall {
  Tensor x, weight;
  std::optional<Tensor> bias, initial_state, cu_seqlens, seq_idx;
  bool silu = false;
  std::string implementation;

  static constexpr auto list() {
    using A = ConvolutionCall;
    return std::tuple{argument("x", &A::x),
                      argument("weight", &A::weight),
                      argument("bias", &A::bias, "None"),
                      argument("initial_state", &A::initial_state, "None"),
                      argument("cu_seqlens", &A::cu_seqlens, "None"),
                      argument("seq_idx", &A::seq_idx, "None"),
                      argument("silu", &A::silu, "False"),
                      argument("implementation", &A::implementation, "\"auto\"")};
  }
};

struct ConvolutionBackwardCall : ConvolutionCall {
  std::optional<Tensor> grad_output, grad_final_state;

  static constexpr auto list() {
    using A = ConvolutionBackwardCall;
    return std::tuple_cat(
        std::tuple{argument("grad_output", &A::grad_output), argument("grad_final_state", &A::grad_final_state)},
        ConvolutionCall::list());
  }
};

// `state` [R,D,S] with S ≥ W − 1 holds the last inputs of R sequences, in the dtype of x, and changes in place. Batch entry b
// uses row state_indices[b], int64 [B], or row b by default; with a negative index it uses none, and its output is 0. The latest
// input is the last one of a row. With cache_seqlens, int64 [B], the row is a ring buffer instead, and the latest input is at the
// index (cache_seqlens[b] − 1) mod S.
struct ConvolutionStepCall {
  Tensor x, state, weight;
  std::optional<Tensor> bias, cache_seqlens, state_indices;
  bool silu = false;
  std::string implementation;

  static constexpr auto list() {
    using A = ConvolutionStepCall;
    return std::tuple{argument("x", &A::x),
                      argument("state", &A::state, nullptr, "Tensor(a!)"),
                      argument("weight", &A::weight),
                      argument("bias", &A::bias, "None"),
                      argument("cache_seqlens", &A::cache_seqlens, "None"),
                      argument("state_indices", &A::state_indices, "None"),
                      argument("silu", &A::silu, "False"),
                      argument("implementation", &A::implementation, "\"auto\"")};
  }
};

// Throws c10::ValueError for invalid arguments. Every operator calls it, because the private one can be called from Python, too.
void check_convolution(const std::string& prefix, const ConvolutionCall& a) {
  const auto check = [&](const char* name, const Tensor& x, const std::vector<c10::SymInt>& shape, at::ScalarType dtype) {
    check_tensor((prefix + name).c_str(), x, shape, dtype, a.x);
  };
  TensorChecks(prefix.c_str()).check("x", a.x, "BDL");
  TORCH_CHECK_VALUE(a.weight.dim() == 2 && a.weight.size(1) >= 1 && a.weight.is_floating_point(), prefix, "weight is ",
                    a.weight.scalar_type(), " ", a.weight.sym_sizes(), ", expected a floating dtype and [channels, width]");
  const auto channels = a.x.sym_size(1), before = a.weight.sym_size(1) - 1;
  check("weight", a.weight, {channels, a.weight.sym_size(1)}, a.weight.scalar_type());
  if (a.bias) check("bias", *a.bias, {channels}, a.weight.scalar_type());
  if (a.cu_seqlens) {
    check_cu_seqlens(prefix, *a.cu_seqlens, a.x);
    TORCH_CHECK_VALUE(a.x.sym_size(0) == 1, prefix, "x has batch ", a.x.sym_size(0), ", expected 1 beside cu_seqlens");
  }
  if (a.seq_idx) {
    TORCH_CHECK_VALUE(!a.initial_state && !a.cu_seqlens, prefix, "seq_idx does not go with initial_state or cu_seqlens");
    check("seq_idx", *a.seq_idx, {a.x.sym_size(0), a.x.sym_size(2)}, at::kInt);
  }
  const auto sequences = a.cu_seqlens ? a.cu_seqlens->sym_size(0) - 1 : a.x.sym_size(0);
  if (a.initial_state) check("initial_state", *a.initial_state, {sequences, channels, before}, a.x.scalar_type());
}

void check_convolution_values(const ConvolutionCall& a) {
  if (a.cu_seqlens) check_values_of_cu_seqlens("causal_convolution: ", *a.cu_seqlens, a.x.size(2), "x");
}

ConvolutionCall call_of_step(const ConvolutionStepCall& a) {
  return {a.x, a.weight, a.bias, {}, {}, {}, a.silu, a.implementation};
}

void check_convolution_step(const ConvolutionStepCall& a) {
  const std::string prefix = "causal_convolution_step: ";
  check_convolution(prefix, call_of_step(a));
  TORCH_CHECK_VALUE(a.state.dim() == 3 && a.state.sym_size(2) >= a.weight.sym_size(1) - 1, prefix, "state has the shape ",
                    a.state.sym_sizes(), ", expected 3 axes with the last at least ", a.weight.sym_size(1) - 1,
                    ", the width less 1");
  check_tensor((prefix + "state").c_str(), a.state,
               {a.state_indices ? a.state.sym_size(0) : a.x.sym_size(0), a.x.sym_size(1), a.state.sym_size(2)}, a.x.scalar_type(),
               a.x);
  for (const auto& [name, numbers] : {std::pair{"cache_seqlens", a.cache_seqlens}, {"state_indices", a.state_indices}})
    if (numbers) check_tensor((prefix + name).c_str(), *numbers, {a.x.sym_size(0)}, at::kLong, a.x);
}

ConvolutionArguments convolution_arguments(const ConvolutionCall& a) {
  return {a.x, a.weight, a.bias, a.initial_state, a.cu_seqlens, a.seq_idx, a.silu};
}

// ---------------------------------------------------------------- computation

// Null if the computation is composed of ATen operations.
const ConvolutionImplementation* find_convolution(const ConvolutionCall& a) {
  return convolution_implementations().find({a.implementation, a.x.scalar_type(), a.x.device().type(), a.weight.size(1),
                                             /*value_dim=*/1, /*gradients=*/true, a.x.device().index()});
}

// x if it has the strides of empty_like_x(like), otherwise a copy of x that has them.
Tensor in_layout_of_x(const Tensor& like, const Tensor& x) {
  const auto wanted = empty_like_x(like);
  return wanted.strides() == x.strides() ? x : wanted.copy_(x);
}

std::tuple<Tensor, Tensor> convolve(const ConvolutionCall& a) {
  check_convolution("causal_convolution: ", a);
  check_convolution_values(a);
  const WithoutAutocast guard;
  const auto* const implementation = find_convolution(a);
  auto results =
      implementation ? implementation->forward(convolution_arguments(a)) : composed_convolution_forward(convolution_arguments(a));
  return {in_layout_of_x(a.x, results.output), std::move(results.final_state)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> convolve_backward(const ConvolutionBackwardCall& a) {
  check_convolution("_causal_convolution_backward: ", a);
  check_convolution_values(a);
  const auto grad_output = a.grad_output.value_or(Tensor()), grad_final_state = a.grad_final_state.value_or(Tensor());
  const WithoutAutocast guard;
  const auto* const implementation = find_convolution(a);
  auto all = implementation ? implementation->backward(convolution_arguments(a), grad_output, grad_final_state)
                            : composed_convolution_backward(convolution_arguments(a), grad_output, grad_final_state);
  const auto given = [&](const Tensor& x) { return x.defined() ? x.contiguous() : at::empty({0}, a.x.options()); };
  return {in_layout_of_x(a.x, all.x), all.weight.contiguous(), given(all.bias), given(all.initial_state)};
}

// Copies the W − 1 inputs before those of the call to `history` [B,D,W−1], and stores the inputs of the call in the state. `Bits`
// is an integer type of the size of an element.
template <class Bits>
void move_state(const ConvolutionStepCall& a, const Tensor& history) {
  const auto channels = a.x.size(1), length = a.x.size(2), size = a.state.size(2), before = a.weight.size(1) - 1;
  const auto x_strides = a.x.strides(), strides = a.state.strides();
  // to[d · to_stride] = from[d · from_stride] for all channels d.
  const auto copy = [channels](const Bits* from, int64_t from_stride, Bits* to, int64_t to_stride) {
    for (int64_t d = 0; d < channels; ++d) to[d * to_stride] = from[d * from_stride];
  };
  const auto row_of = [&](int64_t b) {
    return a.state_indices ? a.state_indices->data_ptr<int64_t>()[b * a.state_indices->stride(0)] : b;
  };
  // All are checked before the first state changes.
  for (int64_t b = 0; b < a.x.size(0); ++b)
    TORCH_CHECK_VALUE(row_of(b) < a.state.size(0), "causal_convolution_step: state_indices contains ", row_of(b),
                      ", but state has ", a.state.size(0), " rows");
  for (int64_t b = 0; b < a.x.size(0); ++b) {
    const auto row = row_of(b);
    if (row < 0) continue;
    const auto* const x = static_cast<const Bits*>(a.x.const_data_ptr()) + b * x_strides[0];
    auto* const state = static_cast<Bits*>(a.state.data_ptr()) + row * strides[0];
    auto* const to = static_cast<Bits*>(history.data_ptr()) + b * channels * before;
    // The place of the next input in the ring buffer. Without one, the state is shifted by the number of inputs.
    auto next = a.cache_seqlens ? a.cache_seqlens->data_ptr<int64_t>()[b * a.cache_seqlens->stride(0)] % size : 0;
    if (next < 0) next += size;
    for (int64_t j = 0; j < before; ++j) copy(state + (next + size - before + j) % size * strides[2], strides[1], to + j, before);
    const auto stays = a.cache_seqlens ? 0 : std::max<int64_t>(0, size - length);
    for (int64_t j = 0; j < stays; ++j) copy(state + (j + length) * strides[2], strides[1], state + j * strides[2], strides[1]);
    for (int64_t t = std::max<int64_t>(0, length - size); t < length; ++t) {
      const auto place = a.cache_seqlens ? (next + t) % size : size - length + t;
      copy(x + t * x_strides[2], x_strides[1], state + place * strides[2], strides[1]);
    }
  }
}

// As move_state(), composed of ATen operations.
void move_state_composed(const ConvolutionStepCall& a, const Tensor& history) {
  const auto length = a.x.size(2), size = a.state.size(2), before = a.weight.size(1) - 1;
  auto state = a.state_indices ? a.state.index_select(0, a.state_indices->clamp_min(0)) : a.state;
  if (a.cache_seqlens) {
    const auto places = [&](int64_t from, int64_t to) {
      return (a.cache_seqlens->unsqueeze(1) + at::arange(from, to, a.cache_seqlens->options()))
          .remainder(size)
          .unsqueeze(1)
          .expand({-1, a.x.size(1), -1});
    };
    history.copy_(state.gather(2, places(-before, 0)));
    const auto skipped = std::max<int64_t>(0, length - size);  // the inputs that later ones would overwrite
    state = state.scatter(2, places(skipped, length), a.x.slice(2, skipped));
  } else {
    history.copy_(state.slice(2, size - before));
    state = at::cat({state, a.x}, 2).slice(2, length);
  }
  if (!a.state_indices) a.state.copy_(state);
  else {
    const auto kept = (*a.state_indices >= 0).nonzero().squeeze(1);
    a.state.index_copy_(0, a.state_indices->index_select(0, kept), state.index_select(0, kept));
  }
}

std::tuple<Tensor> convolve_step(const ConvolutionStepCall& a) {
  check_convolution_step(a);
  const WithoutAutocast guard;
  auto call = call_of_step(a);
  const auto* const implementation = find_convolution(call);
  // Autograd raises an error if a tensor that it saved for a backward pass has another version.
  if (!a.state.is_inference()) a.state.unsafeGetTensorImpl()->bump_version();
  const auto history = at::empty({a.x.size(0), a.x.size(1), a.weight.size(1) - 1}, a.x.options());
  if (a.state.size(2) > 0) {
    if (!implementation) move_state_composed(a, history);
    else if (a.x.element_size() == 2) move_state<int16_t>(a, history);
    else if (a.x.element_size() == 4) move_state<int32_t>(a, history);
    else move_state<int64_t>(a, history);
  }
  call.initial_state = history;
  const auto arguments = convolution_arguments(call);
  auto output = (implementation ? implementation->forward(arguments) : composed_convolution_forward(arguments)).output;
  if (a.state_indices) output = output.masked_fill((*a.state_indices < 0).view({-1, 1, 1}), 0);
  return in_layout_of_x(a.x, output);
}

// ---------------------------------------------------------------- shapes

std::tuple<Tensor, Tensor> convolve_meta(const ConvolutionCall& a) {
  check_convolution("causal_convolution: ", a);
  return {empty_like_x(a.x), empty_final_state(convolution_arguments(a))};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> convolve_backward_meta(const ConvolutionBackwardCall& a) {
  check_convolution("_causal_convolution_backward: ", a);
  const auto given = [&](const std::optional<Tensor>& x) {
    return x ? at::empty_symint(x->sym_sizes(), x->options()) : at::empty({0}, a.x.options());
  };
  return {empty_like_x(a.x), given(a.weight), given(a.bias), given(a.initial_state)};
}

std::tuple<Tensor> convolve_step_meta(const ConvolutionStepCall& a) {
  check_convolution_step(a);
  return empty_like_x(a.x);
}

// ---------------------------------------------------------------- registration

struct ConvolutionOperator {
  using Arguments = ConvolutionCall;
  using BackwardArguments = ConvolutionBackwardCall;
  static constexpr auto name = "attn::causal_convolution", backward_name = "attn::_causal_convolution_backward";
  static constexpr int64_t differentiable_results = 2;

  static BackwardArguments backward_arguments(const Arguments& arguments, const std::vector<Tensor>&,
                                              const std::vector<Tensor>& gradients) {
    const auto optional = [](const Tensor& x) { return x.defined() ? std::optional(x) : std::nullopt; };
    return {arguments, optional(gradients[0]), optional(gradients[1])};
  }
};

TORCH_LIBRARY_FRAGMENT(attn, library) {
  define<ConvolutionCall>(library, "causal_convolution", "(Tensor output, Tensor final_state)");
  define<ConvolutionBackwardCall>(library, "_causal_convolution_backward",
                                  "(Tensor grad_x, Tensor grad_weight, Tensor grad_bias, Tensor grad_initial_state)");
  define<ConvolutionStepCall>(library, "causal_convolution_step", "Tensor");
}
TORCH_LIBRARY_IMPL(attn, CompositeExplicitAutograd, library) {
  library.impl("causal_convolution", kernel<convolve>());
  library.impl("_causal_convolution_backward", kernel<convolve_backward>());
  library.impl("causal_convolution_step", kernel<convolve_step>());
}
TORCH_LIBRARY_IMPL(attn, Meta, library) {
  library.impl("causal_convolution", kernel<convolve_meta>());
  library.impl("_causal_convolution_backward", kernel<convolve_backward_meta>());
  library.impl("causal_convolution_step", kernel<convolve_step_meta>());
}
TORCH_LIBRARY_IMPL(attn, Autograd, library) {
  library.impl("causal_convolution", kernel<Differentiable<ConvolutionOperator>::call>());
  // The step records no gradients, and the convolution is differentiable only once.
  library.impl("causal_convolution_step", torch::autograd::autogradNotImplementedFallback());
  library.impl("_causal_convolution_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace attn
