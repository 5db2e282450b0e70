// ConvolutionTable: the kernels of the causal convolution for vectors V of numbers N, and tensors of the element type E.
// avx512.cpp, avx2.cpp and neon.cpp compile it for the vectors of attn/cpu/simd.h, and portable.cpp for single numbers.
//
// Where channels are neighbours in memory, a vector holds neighbouring channels, and the kernel goes from position to position.
// Otherwise a vector holds neighbouring positions of one channel. In both layouts x is read once from memory, and copies of parts
// of it stay in the first-level cache.
#pragma once

#include <cstdint>
#include <type_traits>

#include "attn/convolution/cpu/kernels.h"
#include "attn/cpu/kernel_table.h"

namespace attn::cpu {
namespace {

// The number of positions whose gradients of weights are summed before the sum is added to that of other positions, which keeps
// the error of long sums small. Also the number of positions of a channel that are in scratch memory at once.
constexpr int64_t kConvolutionBlock = 512;
constexpr int64_t kMostLanes = 16;

// Load and store all lanes of a vector, or only its first lanes.
template <class V>
struct WholeVector {
  template <class T>
  static typename V::F load(const T* p) {
    return V::load(p);
  }
  template <class T>
  static void store(T* p, typename V::F x) {
    V::store(p, x);
  }
  static typename V::F keep(typename V::F x) { return x; }
};
template <class V>
struct PartOfVector {
  typename V::Mask mask;
  template <class T>
  typename V::F load(const T* p) const {
    return V::load(p, mask);
  }
  template <class T>
  void store(T* p, typename V::F x) const {
    V::store(p, x, mask);
  }
  typename V::F keep(typename V::F x) const { return V::keep(x, mask); }
};

// Functions of the standard library must not be used here, see attn/cpu/simd.h.
constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
template <class T>
inline void set_to_zero(T* p, int64_t count) {
  for (int64_t i = 0; i < count; ++i) p[i] = T(0);
}

// Calls work(i, lanes) for i = 0, V::kLanes, … below count.
template <class V, class Work>
inline void for_vectors(int64_t count, const Work& work) {
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) work(i, WholeVector<V>());
  if (i < count) work(i, PartOfVector<V>{V::first(count - i)});
}

// The kernels for the channels begin ≤ d < end of one sequence. kWidth is the width, or 0 for a width that p.width gives.
template <class V, class N, class E, int kWidth>
class Convolution {
  using F = typename V::F;

 public:
  Convolution(const ConvolutionParams& p, int64_t begin, int64_t end, N* scratch)
      : p_(p), begin_(begin), count_(end - begin), scratch_(scratch) {}

  static int64_t scratch_size(int64_t width, int64_t channels) {
    const int64_t of_rows = 3 * (width + 1) * channels, of_channel = 2 * (width + kConvolutionBlock + kMostLanes);
    return of_rows > of_channel ? of_rows : of_channel;
  }

  void forward() const {
    if (p_.channels_last) forward_of_rows();
    else
      for (int64_t d = begin_; d < begin_ + count_; ++d) forward_of_channel(d);
    if (p_.final_state) store_final_state();
  }

  void backward() const {
    if (p_.channels_last) backward_of_rows();
    else
      for (int64_t d = begin_; d < begin_ + count_; ++d) backward_of_channel(d);
    if (p_.grad_final_state) add_gradient_of_final_state();
  }

 private:
  int64_t width() const { return kWidth ? kWidth : p_.width; }
  int64_t state_size() const { return width() - 1; }
  // An element of a tensor in the layout of x.
  template <class T>
  auto* at(T* tensor, int64_t stride, int64_t d, int64_t t) const {
    using Element = std::conditional_t<std::is_const_v<T>, const E, E>;
    return static_cast<Element*>(tensor) + (p_.channels_last ? t * stride + d : d * stride + t);
  }
  // The input of channel d at a position before the sequence, −(W−1) ≤ t < 0.
  E before(int64_t d, int64_t t) const {
    if (p_.continues) return *at(p_.x, p_.x_stride, d, t);
    return p_.initial_state ? static_cast<const E*>(p_.initial_state)[d * state_size() + t + state_size()] : E{};
  }

  static F silu(F u) { return V::div(u, V::add(V::all(1), V::exp(V::sub(V::zero(), u)))); }
  // The gradient of u from that of silu(u).
  static F silu_gradient(F u, F gradient) {
    const F sigmoid = V::div(V::all(1), V::add(V::all(1), V::exp(V::sub(V::zero(), u))));
    const F derivative = V::mul(sigmoid, V::fma(u, V::sub(V::all(1), sigmoid), V::all(1)));
    return V::mul(gradient, derivative);
  }

  // ---------------------------------------------------------------- channels next to each other

  // The rows of x that are multiplied by the weights at a position t: row(i) is that of position t − (W−1) + i. The rows before
  // the sequence are copied to scratch memory.
  class Rows {
   public:
    Rows(const Convolution& c, E* scratch) : c_(c), scratch_(scratch) {
      for (int64_t i = 0; i < c.state_size(); ++i)
        for (int64_t d = 0; d < c.count_; ++d) scratch[i * c.count_ + d] = c.before(c.begin_ + d, i - c.state_size());
    }
    void go_to(int64_t t) {
      for (int64_t i = 0; i < c_.width(); ++i) {
        const int64_t of = t - c_.state_size() + i;
        rows_[i] = of < 0 ? scratch_ + (of + c_.state_size()) * c_.count_ : c_.at(c_.p_.x, c_.p_.x_stride, c_.begin_, of);
      }
    }
    const E* row(int64_t i) const { return rows_[i]; }

   private:
    const Convolution& c_;
    E* scratch_;
    const E* rows_[kMaxConvolutionWidth];
  };

  const N* taps_row(int64_t i) const { return static_cast<const N*>(p_.taps) + i * p_.channels + begin_; }

  template <class Lanes>
  F convolve(const Rows& rows, int64_t d, const Lanes& lanes) const {
    F u = lanes.load(taps_row(width()) + d);
    for (int64_t i = 0; i < width(); ++i) u = V::fma(lanes.load(taps_row(i) + d), lanes.load(rows.row(i) + d), u);
    return u;
  }

  void forward_of_rows() const {
    Rows rows(*this, reinterpret_cast<E*>(scratch_));
    for (int64_t t = 0; t < p_.length; ++t) {
      rows.go_to(t);
      E* const output = at(p_.output, p_.output_stride, begin_, t);
      for_vectors<V>(count_, [&](int64_t d, const auto& lanes) {
        const F u = convolve(rows, d, lanes);
        lanes.store(output + d, p_.silu ? silu(u) : u);
      });
    }
  }

  void backward_of_rows() const {
    N* const sums = scratch_;                       // [W+1, count]: the gradients of taps from a block of positions
    N* const of_u = sums + (width() + 1) * count_;  // [W, count]: the gradients of u at the position and the W − 1 after it
    Rows rows(*this, reinterpret_cast<E*>(of_u + (width() + 1) * count_));
    set_to_zero(sums, (width() + 1) * count_);
    set_to_zero(of_u, width() * count_);
    N* grad_u[kMaxConvolutionWidth];
    for (int64_t i = 0; i < width(); ++i) grad_u[i] = of_u + i * count_;
    for (int64_t t = p_.length; t-- > 0;) {
      rows.go_to(t);
      N* const furthest = grad_u[width() - 1];
      for (int64_t i = width() - 1; i > 0; --i) grad_u[i] = grad_u[i - 1];
      grad_u[0] = furthest;
      const E* const grad_output = at(p_.grad_output, p_.grad_output_stride, begin_, t);
      E* const grad_x = at(p_.grad_x, p_.grad_x_stride, begin_, t);
      for_vectors<V>(count_, [&](int64_t d, const auto& lanes) {
        F du = lanes.load(grad_output + d);
        if (p_.silu) du = silu_gradient(convolve(rows, d, lanes), du);
        lanes.store(grad_u[0] + d, du);
        F dx = V::mul(lanes.load(taps_row(width() - 1) + d), du);
        for (int64_t i = 1; i < width(); ++i)
          dx = V::fma(lanes.load(taps_row(width() - 1 - i) + d), lanes.load(grad_u[i] + d), dx);
        lanes.store(grad_x + d, dx);
        for (int64_t i = 0; i < width(); ++i) {
          N* const sum = sums + i * count_ + d;
          lanes.store(sum, V::fma(du, lanes.load(rows.row(i) + d), lanes.load(sum)));
        }
        N* const sum = sums + width() * count_ + d;
        lanes.store(sum, V::add(du, lanes.load(sum)));
      });
      if (t % kConvolutionBlock == 0) {
        for (int64_t i = 0; i <= width(); ++i) {
          N* const total = static_cast<N*>(p_.grad_taps) + i * p_.channels + begin_;
          for (int64_t d = 0; d < count_; ++d) total[d] += sums[i * count_ + d];
        }
        set_to_zero(sums, (width() + 1) * count_);
      }
    }
    if (!p_.grad_initial_state) return;
    for (int64_t d = 0; d < count_; ++d)
      store_gradient_of_initial_state(
          begin_ + d, [&](int64_t i) { return taps_row(i)[d]; }, [&](int64_t t) { return grad_u[t][d]; });
  }

  // ---------------------------------------------------------------- positions next to each other

  // The taps of channel d. With a width that the compiler knows, a vector of each tap stays in a register.
  class ChannelTaps {
   public:
    ChannelTaps(const Convolution& c, int64_t d) : taps_(static_cast<const N*>(c.p_.taps) + d * (c.width() + 1)) {
      for (int i = 0; kWidth && i <= kWidth; ++i) vectors_[i] = V::all(taps_[i]);
    }
    F vector(int64_t i) const { return kWidth ? vectors_[i] : V::all(taps_[i]); }
    N number(int64_t i) const { return taps_[i]; }

   private:
    const N* taps_;
    F vectors_[kWidth + 1];
  };

  // Sets window[i] to the input of channel d at position begin − (W−1) + i, for the positions begin ≤ t < end and the W − 1
  // before them, and the next kMostLanes numbers to zero.
  void load_window(int64_t d, int64_t begin, int64_t end, N* window) const {
    N* next = window;
    for (int64_t t = begin - state_size(); t < begin; ++t, ++next) {
      const E x = t < 0 ? before(d, t) : *at(p_.x, p_.x_stride, d, t);
      V::store(next, V::load(&x, V::first(1)), V::first(1));
    }
    const E* const x = at(p_.x, p_.x_stride, d, begin);
    for_vectors<V>(end - begin, [&](int64_t i, const auto& lanes) { lanes.store(next + i, lanes.load(x + i)); });
    set_to_zero(next + (end - begin), kMostLanes);
  }

  F convolve(const ChannelTaps& taps, const N* window) const {
    F u = taps.vector(width());
    for (int64_t i = 0; i < width(); ++i) u = V::fma(taps.vector(i), V::load(window + i), u);
    return u;
  }

  void forward_of_channel(int64_t d) const {
    const ChannelTaps taps(*this, d);
    for (int64_t begin = 0; begin < p_.length; begin += kConvolutionBlock) {
      const int64_t end = smaller(p_.length, begin + kConvolutionBlock);
      load_window(d, begin, end, scratch_);
      E* const output = at(p_.output, p_.output_stride, d, begin);
      for_vectors<V>(end - begin, [&](int64_t i, const auto& lanes) {
        const F u = convolve(taps, scratch_ + i);
        lanes.store(output + i, p_.silu ? silu(u) : u);
      });
    }
  }

  void backward_of_channel(int64_t d) const {
    const ChannelTaps taps(*this, d);
    N* const window = scratch_;
    // The gradients of u of the block and of the W − 1 positions after it.
    N* const grad_u = scratch_ + width() + kConvolutionBlock + kMostLanes;
    const int64_t last_block = p_.length == 0 ? 0 : (p_.length - 1) / kConvolutionBlock * kConvolutionBlock;
    set_to_zero(grad_u, width() + kConvolutionBlock + kMostLanes);
    N* const total = static_cast<N*>(p_.grad_taps) + d * (width() + 1);
    for (int64_t begin = last_block; begin >= 0; begin -= kConvolutionBlock) {
      const int64_t end = smaller(p_.length, begin + kConvolutionBlock);
      for (int64_t i = 0; begin < last_block && i < state_size(); ++i) grad_u[kConvolutionBlock + i] = grad_u[i];
      load_window(d, begin, end, window);
      const E* const grad_output = at(p_.grad_output, p_.grad_output_stride, d, begin);
      F sums[kWidth ? kWidth + 1 : kMaxConvolutionWidth + 1];
      for (int64_t i = 0; i <= width(); ++i) sums[i] = V::zero();
      for_vectors<V>(end - begin, [&](int64_t t, const auto& lanes) {
        F du = lanes.load(grad_output + t);
        if (p_.silu) du = silu_gradient(convolve(taps, window + t), du);
        du = lanes.keep(du);
        lanes.store(grad_u + t, du);
        for (int64_t i = 0; i < width(); ++i) sums[i] = V::fma(du, V::load(window + t + i), sums[i]);
        sums[width()] = V::add(sums[width()], du);
      });
      for (int64_t i = 0; i <= width(); ++i) total[i] += V::sum(sums[i]);
      E* const grad_x = at(p_.grad_x, p_.grad_x_stride, d, begin);
      for_vectors<V>(end - begin, [&](int64_t t, const auto& lanes) {
        F dx = V::mul(taps.vector(width() - 1), V::load(grad_u + t));
        for (int64_t i = 1; i < width(); ++i) dx = V::fma(taps.vector(width() - 1 - i), V::load(grad_u + t + i), dx);
        lanes.store(grad_x + t, dx);
      });
    }
    if (p_.grad_initial_state)
      store_gradient_of_initial_state(
          d, [&](int64_t i) { return taps.number(i); }, [&](int64_t t) { return grad_u[t]; });
  }

  // ---------------------------------------------------------------- states

  static E narrow(N x) {
    E element;
    V::store(&element, V::all(x), V::first(1));
    return element;
  }
  static N widen(E x) { return V::sum(V::load(&x, V::first(1))); }

  // Stores the gradient of the initial state of channel d. tap(i) is weight i of the channel, and grad_u(t) is the gradient of u
  // at position t < W − 1.
  template <class Tap, class GradU>
  void store_gradient_of_initial_state(int64_t d, const Tap& tap, const GradU& grad_u) const {
    E* const to = static_cast<E*>(p_.grad_initial_state) + d * state_size();
    for (int64_t j = 0; j < state_size(); ++j) {
      N sum = 0;
      for (int64_t t = 0; t <= j && t < p_.length; ++t) sum += tap(j - t) * grad_u(t);
      to[j] = narrow(sum);
    }
  }

  void store_final_state() const {
    E* const to = static_cast<E*>(p_.final_state);
    for (int64_t d = begin_; d < begin_ + count_; ++d)
      for (int64_t j = 0; j < state_size(); ++j) {
        const int64_t t = p_.length - state_size() + j;
        to[d * state_size() + j] = t < 0 ? before(d, t) : *at(p_.x, p_.x_stride, d, t);
      }
  }

  void add_gradient_of_final_state() const {
    const E* const from = static_cast<const E*>(p_.grad_final_state);
    for (int64_t d = begin_; d < begin_ + count_; ++d)
      for (int64_t j = 0; j < state_size(); ++j) {
        const int64_t t = p_.length - state_size() + j;
        E* to = nullptr;
        if (t >= 0) to = at(p_.grad_x, p_.grad_x_stride, d, t);
        else if (p_.grad_initial_state) to = static_cast<E*>(p_.grad_initial_state) + d * state_size() + t + state_size();
        if (to) *to = narrow(widen(*to) + widen(from[d * state_size() + j]));
      }
  }

  const ConvolutionParams& p_;
  int64_t begin_, count_;
  N* scratch_;
};

template <class V, class N, class E>
class ConvolutionTable {
  // Calls work(Convolution), for the width of the parameters.
  template <class Work>
  static void with(const ConvolutionParams& p, int64_t begin, int64_t end, void* scratch, const Work& work) {
    auto* const numbers = static_cast<N*>(scratch);
    if (p.width == 4) work(Convolution<V, N, E, 4>(p, begin, end, numbers));
    else if (p.width == 3) work(Convolution<V, N, E, 3>(p, begin, end, numbers));
    else work(Convolution<V, N, E, 0>(p, begin, end, numbers));
  }

 public:
  static constexpr ConvolutionKernels kernels(const char* name) {
    return {
        name,
        Convolution<V, N, E, 0>::scratch_size,
        [](const ConvolutionParams& p, int64_t begin, int64_t end, void* scratch) {
          with(p, begin, end, scratch, [](const auto& convolution) { convolution.forward(); });
        },
        [](const ConvolutionParams& p, int64_t begin, int64_t end, void* scratch) {
          with(p, begin, end, scratch, [](const auto& convolution) { convolution.backward(); });
        },
    };
  }
};

}  // namespace
}  // namespace attn::cpu
