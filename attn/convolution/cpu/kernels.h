// The interface of the CPU kernels of the causal convolution (attn/convolution/implementation.h). Each instruction set provides
// them; each works on some channels of one sequence. attn/convolution/cpu/implementation.cpp combines them into the passes over
// whole tensors.
#pragma once

#include <cstdint>

#include "attn/element_type.h"

namespace attn::cpu {

// The widest convolution that the kernels compute.
constexpr int64_t kMaxConvolutionWidth = 32;

// Pointers are to channel 0 at position 0 of the sequence. x, the output and their gradients have one layout: with channels_last,
// neighbouring channels are neighbours in memory, and positions are `…_stride` elements apart; otherwise positions are
// neighbours, and channels are `…_stride` elements apart. `taps` and its gradient have the accumulator dtype (float64 for float64
// elements, float32 for others), all other tensors the element type.
struct ConvolutionParams {
  int64_t channels = 0, width = 0, length = 0;
  bool channels_last = false, silu = false;
  const void* taps = nullptr;  // the weights and the bias of each channel: [W+1, channels] if channels_last, else [channels, W+1]
  const void* x = nullptr;
  int64_t x_stride = 0;
  const void* initial_state = nullptr;  // [channels, W−1], as all states; null for zeros
  // Forward only: whether x has at least W−1 positions of the sequence before position 0, which are read instead of a state.
  bool continues = false;
  // The forward pass writes these.
  void* output = nullptr;
  int64_t output_stride = 0;
  void* final_state = nullptr;  // may be null
  // The backward pass reads grad_output and grad_final_state, and writes the others.
  const void* grad_output = nullptr;
  int64_t grad_output_stride = 0;
  const void* grad_final_state = nullptr;  // null for zeros
  void* grad_x = nullptr;
  int64_t grad_x_stride = 0;
  void* grad_initial_state = nullptr;  // may be null
  void* grad_taps = nullptr;           // as taps; the gradients of this sequence are added to it
};

// The kernels of one instruction set for one element type. They compute the channels begin ≤ d < end. `scratch` has room for
// scratch_size() numbers of the accumulator dtype, for at most `channels` channels.
struct ConvolutionKernels {
  const char* name;  // the name in records, such as "avx512"
  int64_t (*scratch_size)(int64_t width, int64_t channels);
  void (*forward)(const ConvolutionParams&, int64_t begin, int64_t end, void* scratch);
  void (*backward)(const ConvolutionParams&, int64_t begin, int64_t end, void* scratch);
};

// The vector kernels for float32 and bfloat16; null for other types. These functions are weak symbols: in a build without the
// kernels of an instruction set, the address of its function is null.
[[gnu::weak]] const ConvolutionKernels* convolution_kernels_avx512(ElementType element);
[[gnu::weak]] const ConvolutionKernels* convolution_kernels_avx2(ElementType element);
[[gnu::weak]] const ConvolutionKernels* convolution_kernels_neon(ElementType element);
// The portable kernels for float32, bfloat16 and float64; null for float16.
const ConvolutionKernels* convolution_kernels_portable(ElementType element);

}  // namespace attn::cpu
