// Adds up shifted copies of the input, each multiplied by one column of the weights.
#include "attn/convolution/composed.h"

#include <ATen/ATen.h>

#include <vector>

#include "attn/operators/composition.h"

namespace attn {
namespace {

using at::Tensor;

// The positions at which sequences begin and end, int64 [sequences + 1], if the batch entries are put one after another.
Tensor borders_of(const ConvolutionArguments& a, int64_t batch, int64_t length) {
  if (a.cu_seqlens) return *a.cu_seqlens;
  const auto integers = a.x.options().dtype(at::kLong).requires_grad(false);
  if (!a.seq_idx) return at::arange(batch + 1, integers) * length;
  auto begins = at::ones({batch, length}, integers.dtype(at::kBool));
  begins.slice(1, 1).copy_(a.seq_idx->slice(1, 1) != a.seq_idx->slice(1, 0, -1));
  return at::cat({begins.flatten().nonzero().squeeze(1), at::full({1}, batch * length, integers)});
}

}  // namespace

ConvolutionResults composed_convolution_forward(const ConvolutionArguments& a) {
  const auto batch = a.x.size(0), channels = a.x.size(1), length = a.x.size(2), positions = batch * length;
  const auto width = a.weight.size(1), before = width - 1;
  const auto wide = accumulator_dtype(a.x.scalar_type());
  const auto borders = borders_of(a, batch, length);
  const auto count = borders.size(0) - 1;
  const auto range = [&](int64_t n) { return at::arange(n, borders.options()); };

  // `padded` has all sequences one after another, each preceded by its W − 1 earlier inputs.
  const auto sequence = at::repeat_interleave(range(count), borders.diff());
  const auto places = range(positions) + (sequence + 1) * before;
  const auto places_of_states = [&](const Tensor& of) { return (of.unsqueeze(1) + range(before)).flatten(); };
  auto padded = at::zeros({channels, positions + count * before}, a.x.options().dtype(wide))
                    .index_copy(1, places, a.x.transpose(0, 1).reshape({channels, positions}).to(wide));
  if (a.initial_state)
    padded = padded.index_copy(1, places_of_states(borders.slice(0, 0, -1) + range(count) * before),
                               a.initial_state->transpose(0, 1).reshape({channels, count * before}).to(wide));

  auto u = at::zeros({channels, positions}, padded.options());
  if (a.bias) u = u + a.bias->to(wide).unsqueeze(1);
  for (int64_t i = 0; i < width; ++i) u = u + a.weight.to(wide).slice(1, i, i + 1) * padded.index_select(1, places - before + i);
  if (a.silu) u = at::silu(u);
  auto output = u.reshape({channels, batch, length}).transpose(0, 1);
  if (a.seq_idx) return {output.masked_fill((*a.seq_idx < 0).unsqueeze(1), 0).to(a.x.scalar_type()), empty_final_state(a)};
  const auto final_state = padded.index_select(1, places_of_states(borders.slice(0, 1) + range(count) * before));
  return {output.to(a.x.scalar_type()),
          final_state.reshape({channels, count, before}).transpose(0, 1).to(a.x.scalar_type()).contiguous()};
}

ConvolutionGradients composed_convolution_backward(const ConvolutionArguments& a, const Tensor& grad_output,
                                                   const Tensor& grad_final_state) {
  auto copies = a;
  std::vector<Tensor*> inputs{&copies.x, &copies.weight};
  for (auto* optional : {&copies.bias, &copies.initial_state})
    if (*optional) inputs.push_back(&**optional);
  const auto forward = [&] {
    const auto results = composed_convolution_forward(copies);
    return std::vector<Tensor>{results.output, results.final_state};
  };
  const auto found = gradients_of_composition(inputs, forward, {grad_output, grad_final_state});
  auto next = found.begin() + 2;
  ConvolutionGradients all{found[0], found[1], {}, {}};
  if (a.bias) all.bias = *next++;
  if (a.initial_state) all.initial_state = *next++;
  return all;
}

}  // namespace attn
