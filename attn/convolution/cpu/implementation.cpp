// The implementations of the causal convolution for the CPU, which register themselves with convolution_implementations().
#include "attn/convolution/implementation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "attn/convolution/cpu/kernels.h"
#include "attn/cpu/kernel_family.h"
#include "attn/cpu/tensors.h"

namespace attn::cpu {
namespace {

using at::Tensor;

const KernelFamily<ConvolutionKernels, ImplementationRequest>& convolution_family() {
  static const KernelFamily<ConvolutionKernels, ImplementationRequest> all{
      .members = {{InstructionSet::avx512, convolution_kernels_avx512},
                  {InstructionSet::avx2, convolution_kernels_avx2},
                  {InstructionSet::neon, convolution_kernels_neon},
                  {InstructionSet::portable, convolution_kernels_portable}},
      .why_not_any = [](const ImplementationRequest& request) -> std::string {
        if (request.head_dim <= kMaxConvolutionWidth) return "";
        return "does not compute width " + std::to_string(request.head_dim) + ", only up to " +
               std::to_string(kMaxConvolutionWidth);
      }};
  return all;
}

// A sequence in x, or a piece of a sequence.
struct ConvolutionSequence {
  int64_t entry, begin, end;                    // the batch entry, and the positions in it
  int64_t state;                                // its index among the states
  bool has_earlier = false, has_later = false;  // whether the sequence has earlier or later pieces
};

// The sequences of a call. Positions with a negative seq_idx belong to no sequence; if there are any, `has_gaps` is true.
struct ConvolutionSequences {
  std::vector<ConvolutionSequence> all;
  bool has_gaps = false;

  explicit ConvolutionSequences(const ConvolutionArguments& a) {
    const auto batch = a.x.size(0), length = a.x.size(2);
    if (a.cu_seqlens) {
      const auto borders = a.cu_seqlens->contiguous();
      const auto* const values = borders.const_data_ptr<int64_t>();
      for (int64_t i = 0; i + 1 < borders.numel(); ++i) all.push_back({0, values[i], values[i + 1], i});
    } else if (a.seq_idx) {
      const auto numbers = a.seq_idx->contiguous();
      for (int64_t entry = 0; entry < batch; ++entry) {
        const auto* const of = numbers.const_data_ptr<int32_t>() + entry * length;
        for (int64_t begin = 0, end = 0; begin < length; begin = end) {
          for (end = begin + 1; end < length && of[end] == of[begin];) ++end;
          if (of[begin] >= 0) all.push_back({entry, begin, end, 0});
          else has_gaps = true;
        }
      }
    } else {
      for (int64_t entry = 0; entry < batch; ++entry) all.push_back({entry, 0, length, entry});
    }
  }
};

// x if its memory has the layout that `channels_last` says, otherwise a copy that has it.
Tensor with_layout(const Tensor& x, bool channels_last) {
  if (x.stride(channels_last ? 1 : 2) == 1) return x;
  return channels_last ? x.transpose(1, 2).contiguous().transpose(1, 2) : x.contiguous();
}

// The tensors of a pass, and the distribution of their channels over threads.
class ConvolutionPass {
 public:
  ConvolutionPass(const ConvolutionKernels& kernels, const ConvolutionArguments& a)
      : kernels_(kernels), sequences_(a), channels_last_(is_channels_last(a.x)), x_(with_layout(a.x, channels_last_)) {
    const auto channels = a.x.size(1), width = a.weight.size(1);
    const auto numbers = a.x.options().dtype(accumulator_dtype(a.x.scalar_type()));
    taps_ = channels_last_ ? at::empty({width + 1, channels}, numbers) : at::empty({channels, width + 1}, numbers);
    const auto of_channels = channels_last_ ? taps_.t() : taps_;
    of_channels.slice(1, 0, width).copy_(a.weight);
    if (a.bias) of_channels.select(1, width).copy_(*a.bias);
    else of_channels.select(1, width).zero_();
    common_ = {.channels = channels,
               .width = width,
               .channels_last = channels_last_,
               .silu = a.silu,
               .taps = taps_.const_data_ptr(),
               .x_stride = stride(x_)};
    if (a.initial_state) initial_state_ = a.initial_state->contiguous();
  }

  ConvolutionResults forward(const ConvolutionArguments& a) {
    ConvolutionResults results{empty_like_x(a.x), empty_final_state(a)};
    if (sequences_.has_gaps) results.output.zero_();
    common_.output_stride = stride(results.output);
    const auto all = pieces();
    run(all.size(), [&](int64_t first, int64_t last, int64_t index, void* scratch) {
      const auto& piece = all[size_t(index)];
      auto p = params(piece);
      p.output = position(results.output, piece);
      if (!a.seq_idx && !piece.has_later) p.final_state = state(results.final_state, piece);
      kernels_.forward(p, first, last, scratch);
    });
    return results;
  }

  ConvolutionGradients backward(const ConvolutionArguments& a, const Tensor& grad_output, const Tensor& grad_final_state) {
    ConvolutionGradients gradients;
    gradients.x = empty_like_x(a.x);
    if (sequences_.has_gaps) gradients.x.zero_();
    if (a.initial_state) gradients.initial_state = at::empty(a.initial_state->sizes(), a.x.options());
    const auto of_output = with_layout(grad_output.defined() ? grad_output : empty_like_x(a.x).zero_(), channels_last_);
    const auto of_states = grad_final_state.defined() && !a.seq_idx ? grad_final_state.contiguous() : Tensor();
    const auto of_taps = at::zeros_like(taps_);
    common_.grad_output_stride = stride(of_output);
    common_.grad_x_stride = stride(gradients.x);
    common_.grad_taps = of_taps.data_ptr();
    // One thread computes a channel for all sequences, in their order, so that sums do not depend on the number of threads.
    run(1, [&](int64_t first, int64_t last, int64_t, void* scratch) {
      for (const auto& sequence : sequences_.all) {
        auto p = params(sequence);
        p.grad_output = position(of_output, sequence);
        p.grad_x = position(gradients.x, sequence);
        p.grad_final_state = state(of_states, sequence);
        p.grad_initial_state = state(gradients.initial_state, sequence);
        kernels_.backward(p, first, last, scratch);
      }
    });
    const auto of_channels = channels_last_ ? of_taps.t() : of_taps;
    gradients.weight = at::empty(a.weight.sizes(), a.weight.options()).copy_(of_channels.slice(1, 0, common_.width));
    if (a.bias) gradients.bias = at::empty(a.bias->sizes(), a.bias->options()).copy_(of_channels.select(1, common_.width));
    return gradients;
  }

 private:
  // The smallest number of channels of a task; the smallest number of positions of a piece, since each piece reads W − 1
  // positions a second time; and the number of tasks for each thread, so that all threads end at about the same time.
  static constexpr int64_t kFewestChannels = 64, kShortestPiece = 512, kTasksOfThread = 4;
  static_assert(kShortestPiece >= kMaxConvolutionWidth);

  int64_t stride(const Tensor& x) const { return x.stride(channels_last_ ? 2 : 1); }
  static char* position(const Tensor& x, const ConvolutionSequence& s) {
    return static_cast<char*>(x.data_ptr()) + int64_t(x.element_size()) * (s.entry * x.stride(0) + s.begin * x.stride(2));
  }
  static char* state(const Tensor& states, const ConvolutionSequence& s) {
    if (!states.defined() || states.numel() == 0) return nullptr;
    return static_cast<char*>(states.data_ptr()) + int64_t(states.element_size()) * s.state * states.stride(0);
  }
  ConvolutionParams params(const ConvolutionSequence& s) const {
    auto p = common_;
    p.length = s.end - s.begin;
    p.x = position(x_, s);
    p.initial_state = state(initial_state_, s);
    p.continues = s.has_earlier;
    return p;
  }

  // The number of threads. It is 1 if one thread is done before another has started.
  int64_t thread_count() const {
    constexpr int64_t kMinElementsForThreads = 1 << 15;
    return x_.numel() < kMinElementsForThreads ? 1 : at::get_num_threads();
  }

  // The sequences, divided into pieces if there are too few sequences and channels for all threads. An output is computed in the
  // same way wherever pieces begin, so its bits do not depend on the number of threads.
  std::vector<ConvolutionSequence> pieces() const {
    const auto parts = (common_.channels + kFewestChannels - 1) / kFewestChannels;
    const auto wanted = kTasksOfThread * thread_count();
    if (thread_count() == 1 || parts * int64_t(sequences_.all.size()) >= wanted) return sequences_.all;
    const auto share = x_.size(0) * x_.size(2) * parts / wanted;
    const auto length = std::max<int64_t>(1, share / kShortestPiece) * kShortestPiece;
    std::vector<ConvolutionSequence> all;
    for (const auto& whole : sequences_.all) {
      auto piece = whole;
      for (; whole.end - piece.begin >= 2 * length; piece.begin = piece.end) {
        piece.end = piece.begin + length;
        piece.has_later = true;
        all.push_back(piece);
        piece.has_earlier = true;
      }
      piece.end = whole.end;
      piece.has_later = false;
      all.push_back(piece);
    }
    return all;
  }

  // Calls work(begin, end, index, scratch) for each index < count and ranges begin ≤ d < end that together are all channels.
  void run(size_t count, const std::function<void(int64_t, int64_t, int64_t, void*)>& work) const {
    constexpr int64_t kMostChannels = 1024;  // The rows of so many channels fill a first-level cache.
    const auto threads = thread_count();
    const auto tasks_for_all = std::max<int64_t>(1, kTasksOfThread * threads / std::max<int64_t>(1, int64_t(count)));
    const auto rounded = (common_.channels / tasks_for_all + kFewestChannels - 1) / kFewestChannels * kFewestChannels;
    const auto channels = std::clamp(rounded, kFewestChannels, kMostChannels);
    const auto parts = (common_.channels + channels - 1) / channels;
    const ThreadScratch scratch(kernels_.scratch_size(common_.width, channels), taps_.options());
    const auto run_tasks = [&](int64_t begin, int64_t end) {
      for (auto task = begin; task < end; ++task) {
        const auto first = task % parts * channels;
        work(first, std::min(common_.channels, first + channels), task / parts, scratch.for_this_thread());
      }
    };
    if (threads == 1) run_tasks(0, parts * int64_t(count));
    else at::parallel_for(0, parts * int64_t(count), 1, run_tasks);
  }

  const ConvolutionKernels& kernels_;
  ConvolutionSequences sequences_;
  bool channels_last_;
  Tensor x_, taps_, initial_state_;
  ConvolutionParams common_{};
};

class CpuConvolution final : public ConvolutionImplementation {
 public:
  explicit CpuConvolution(const ConvolutionKernels& kernels) : kernels_(kernels) {}

  std::string name() const override { return kernels_.name; }
  ConvolutionResults forward(const ConvolutionArguments& a) const override { return ConvolutionPass(kernels_, a).forward(a); }
  ConvolutionGradients backward(const ConvolutionArguments& a, const Tensor& grad_output,
                                const Tensor& grad_final_state) const override {
    return ConvolutionPass(kernels_, a).backward(a, grad_output, grad_final_state);
  }

 private:
  const ConvolutionKernels& kernels_;
};

const bool convolution_registered = (convolution_implementations().register_cpu(
                                         implementations_of<ConvolutionImplementation, CpuConvolution>(convolution_family())),
                                     true);

}  // namespace
}  // namespace attn::cpu
