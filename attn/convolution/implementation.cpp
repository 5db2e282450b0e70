// The registry of implementations of the causal convolution, and the layouts of their tensors.
#include "attn/convolution/implementation.h"

#include <ATen/ATen.h>

namespace attn {

ConvolutionRegistry& convolution_implementations() {
  static ConvolutionRegistry registry("causal_convolution");
  return registry;
}

bool is_channels_last(const at::Tensor& x) { return x.sym_stride(1) == 1 && !(x.sym_size(1) == 1 && x.sym_stride(2) == 1); }

at::Tensor empty_like_x(const at::Tensor& x) {
  if (!is_channels_last(x)) return at::empty_symint(x.sym_sizes(), x.options());
  return at::empty_symint({x.sym_size(0), x.sym_size(2), x.sym_size(1)}, x.options()).transpose(1, 2);
}

at::Tensor empty_final_state(const ConvolutionArguments& a) {
  if (a.seq_idx) return at::empty({0}, a.x.options());
  const auto count = a.cu_seqlens ? a.cu_seqlens->sym_size(0) - 1 : a.x.sym_size(0);
  return at::empty_symint({count, a.x.sym_size(1), a.weight.sym_size(1) - 1}, a.x.options());
}

}  // namespace attn
