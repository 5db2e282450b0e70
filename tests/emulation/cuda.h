// Runs CUDA kernels on the CPU, so that machines without a GPU can test the kernels' own source. attn/cuda/device.h includes this
// header instead of the CUDA toolkit. Blocks run one after another. The threads of a block are fibres, which switch where they
// wait for each other.
//
// Kernels can use threadIdx, blockIdx, blockDim and gridDim; __syncthreads and __syncwarp; shuffles and votes of whole or partial
// warps; atomics; and shared memory, which is filled with 0xCD before each block and has exactly the requested size. If some
// threads never reach a barrier, the error says how many threads wait where. Threads run in the order that set_thread_order()
// sets. A missing barrier gives wrong results in one order or another, so tests run several orders. tests/emulation/instrumented
// finds races in any order, and counts accesses to memory; observer.h is what it needs of the emulation.
//
// The emulation refuses, by std::runtime_error, what a GPU refuses or leaves undefined: launches beyond the limits of the
// architecture, exchanges with lanes that do not take part, and asynchronous copies that are not aligned.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess = 0 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct float4 {
  float x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};

namespace attn::emulation {

// The number of multiprocessors that the emulated GPU reports. Blocks run one after another whatever this number is.
int64_t multiprocessors();
void set_multiprocessors(int64_t count);
// The size of its L2 cache. It is small, so that kernels cut small problems into groups that fit it.
int64_t l2_bytes();
void set_l2_bytes(int64_t bytes);
// The largest shared memory in bytes that a block had since the last call.
size_t take_largest_shared_bytes();
// Sorts `count` keys by their lowest `bits` bits, in place of CUB's radix sort.
void sort_by_lowest_bits(const uint64_t* keys, uint64_t* sorted, int64_t count, int bits);

enum class ThreadOrder { forward, backward, shuffled };
// Sets the order in which the threads of a block run, in all kernels that run from now on. `seed` is used by `shuffled`.
void set_thread_order(ThreadOrder order, uint64_t seed = 0);
// Sets the order in which the blocks of a grid run, in the same way.
void set_block_order(ThreadOrder order, uint64_t seed = 0);

// The architecture of the emulated GPU, as in sm_86: 80, 86, 89, 90 or 120. It decides how much shared memory a block can have.
// It is 90 at first.
void set_architecture(int number);
int architecture();
// The most bytes of dynamic shared memory that a block can request: what the architecture has, or what was set since it was.
size_t max_shared_bytes();
void set_max_shared_bytes(size_t bytes);
// Lets blocks of a kernel have more than 48 KiB of shared memory, as cudaFuncSetAttribute does. Throws std::runtime_error for
// more than max_shared_bytes().
void allow_shared_bytes(const void* kernel, size_t bytes);

// Runs `thread` once for each thread of each block. Throws std::runtime_error for a launch that a GPU refuses, and when threads
// wait for others that never arrive. The functions below may be called only from within `thread`. `kernel` is the kernel's
// address, which identifies it; a launch without it may have the most shared memory without asking for it. `begins_early` says
// that a GPU may begin it before the kernel before it has ended; here it always begins after it.
void run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& thread, const void* kernel = nullptr,
              bool begins_early = false);

// Runs a kernel with these arguments.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, bool begins_early,
            const Arguments&... arguments) {
  const auto thread = [&] { kernel(arguments...); };
  // The reference keeps the function's captures on the stack, where accesses to them are not taken for those to global memory.
  run_grid(grid, block, shared_bytes, std::ref(thread), reinterpret_cast<const void*>(kernel), begins_early);
}

// Where the current thread is in the grid.
struct Place {
  dim3 thread, block, grid_size, block_size;
};
const Place& place();
char* shared_bytes();                                               // the shared memory of the current block
void wait_for_block(const std::source_location& at);                // __syncthreads()
void wait_for_warp(unsigned mask, const std::source_location& at);  // __syncwarp()
constexpr size_t kMaxExchanged = 64;
// Exchanges values among the lanes of a warp that are in `mask`. Each lane gives `bytes` bytes, at most kMaxExchanged. The result
// holds the bytes of lane l at l·kMaxExchanged. It stays valid during the lane's next exchange, and is overwritten by the one
// after that. All lanes in the mask must give the same mask and number of bytes.
const char* exchange(unsigned mask, const void* value, size_t bytes);
// Throws std::runtime_error if a lane of this number does not exist or is not in the mask.
void check_source_lane(unsigned mask, unsigned lane);
// Says that the current thread waits for the kernel before this one.
void wait_for_previous_kernel();
// Says that the current thread reads and writes these bytes as one atomic operation.
void atomic_access(void* to, size_t bytes);

// Asynchronous copies by the current thread. A copy is made only when the thread waits for it, so that a kernel that reads too
// early does not find the data. If `from` is null, zeros are written. Throws std::runtime_error unless both addresses are
// multiples of `bytes`, and for a copy to other memory than the block's shared memory.
void copy_later(void* to, const void* from, size_t bytes);
void end_copy_group();
void wait_for_copies(size_t groups_left);

// The value that a lane gave in an exchange.
template <class T>
const T& given_by(const char* exchanged, unsigned lane) {
  return *reinterpret_cast<const T*>(exchanged + lane * kMaxExchanged);
}

// The number of the current thread within its warp.
inline unsigned lane() {
  const auto& p = place();
  return (p.thread.x + p.block_size.x * (p.thread.y + p.block_size.y * p.thread.z)) % 32;
}

}  // namespace attn::emulation

#define threadIdx (::attn::emulation::place().thread)
#define blockIdx (::attn::emulation::place().block)
#define gridDim (::attn::emulation::place().grid_size)
#define blockDim (::attn::emulation::place().block_size)

inline void __syncthreads(const std::source_location& at = std::source_location::current()) {
  attn::emulation::wait_for_block(at);
}
inline void __syncwarp(unsigned mask = ~0u, const std::source_location& at = std::source_location::current()) {
  attn::emulation::wait_for_warp(mask, at);
}
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute, int bytes) {
  attn::emulation::allow_shared_bytes(reinterpret_cast<const void*>(kernel), size_t(bytes));
  return cudaSuccess;
}

template <class T>
T __shfl_sync(unsigned mask, T value, unsigned source, unsigned width = 32) {
  static_assert(sizeof(T) <= attn::emulation::kMaxExchanged && std::is_trivially_copyable_v<T>);
  const auto from = attn::emulation::lane() / width * width + source % width;
  attn::emulation::check_source_lane(mask, from);
  return attn::emulation::given_by<T>(attn::emulation::exchange(mask, &value, sizeof value), from);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, unsigned bits, unsigned width = 32) {
  const auto within = attn::emulation::lane() % width;
  return __shfl_sync(mask, value, (within ^ bits) < width ? within ^ bits : within, width);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, unsigned width = 32) {
  const auto within = attn::emulation::lane() % width;
  return __shfl_sync(mask, value, within >= by ? within - by : within, width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, unsigned width = 32) {
  const auto within = attn::emulation::lane() % width;
  return __shfl_sync(mask, value, within + by < width ? within + by : within, width);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const auto* all = attn::emulation::exchange(mask, &predicate, sizeof predicate);
  unsigned votes = 0;
  for (unsigned l = 0; l < 32; ++l)
    if ((mask >> l & 1) != 0 && attn::emulation::given_by<int>(all, l) != 0) votes |= 1u << l;
  return votes;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

// Only one thread runs at a time, so plain operations are atomic. They are not instrumented: atomic_access() reports them.
#define ATTN_NOT_INSTRUMENTED __attribute__((no_sanitize("thread")))
template <class T>
ATTN_NOT_INSTRUMENTED T atomicAdd(T* to, std::type_identity_t<T> value) {
  attn::emulation::atomic_access(to, sizeof *to);
  const T before = *to;
  *to = before + value;
  return before;
}
template <class T>
ATTN_NOT_INSTRUMENTED T atomicMax(T* to, std::type_identity_t<T> value) {
  attn::emulation::atomic_access(to, sizeof *to);
  const T before = *to;
  if (value > before) *to = value;
  return before;
}
inline void __threadfence() {}

template <class T>
T __ldg(const T* p) {
  return *p;
}
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
