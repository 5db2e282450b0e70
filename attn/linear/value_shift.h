// The constant that the backward pass of linear attention takes off v.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace attn {

// A number for each head and column of v that is near most of its visible values: [B,H,M], in `dtype`, contiguous.
//
// A row's gradient of φ(q) is S g′ + δ Z, where g′ = grad_output / normalizer and δ = −φ·S g′ / normalizer. If v has a mean μ,
// both terms contain Z (μ·g′), which nearly cancels. With v′ = v − c in the place of v, for any c that is the same for all
// positions,
//   S = S′ + Z cᵀ,   S g′ + δ Z = S′ g′ + δ′ Z,   g′·v + δ = g′·v′ + δ′,   δ′ = (−φ·S′ g′ + ε c·g′) / normalizer,
// so that the gradients of q and k can be computed from v′ and δ′, whose terms do not grow with the mean. (φ·Z is the normalizer
// minus ε.) The gradient of v does not depend on v.
//
// c is the median of the means of three parts of the sequence, so that a few extreme values do not move it. Long sequences are
// sampled. Values that are not finite are taken for zeros. c only affects how results are rounded.
at::Tensor value_shift(const at::Tensor& v, const std::optional<at::Tensor>& key_lengths, at::ScalarType dtype);

}  // namespace attn
