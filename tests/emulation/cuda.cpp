// Runs the threads of a block as fibres, which switch where a kernel waits.
#include "tests/emulation/cuda.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/emulation/observer.h"

#ifdef __x86_64__
#define ATTN_OWN_SWITCH 1
#else
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define ATTN_ASAN 1
#endif

#ifdef ATTN_OWN_SWITCH
// Saves the registers that a callee must preserve, stores the stack pointer in *from, and continues on the stack `to`.
extern "C" void attn_switch_stacks(void** from, void* to);
asm(R"(
.text
.globl attn_switch_stacks
.type attn_switch_stacks, @function
attn_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size attn_switch_stacks, .-attn_switch_stacks
)");
#endif

namespace attn::emulation {

const Running* running = nullptr;
Observer* observer = nullptr;

namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr unsigned kWarp = 32;

enum class State { ready, at_barrier, at_exchange, done };

void run_thread();

// A fibre: a stack on which one thread of a block runs, until it waits and control returns to the scheduler.
class Fibre {
 public:
  Fibre() {
    stack_ =
        static_cast<char*>(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0));
    if (stack_ == MAP_FAILED) throw std::bad_alloc();
    mprotect(stack_, size_t(sysconf(_SC_PAGESIZE)), PROT_NONE);
  }
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;
  ~Fibre() { munmap(stack_, kStackBytes); }

  // Prepares the stack so that enter() starts run_thread().
  void begin() {
#ifdef ATTN_ASAN
    ASAN_UNPOISON_MEMORY_REGION(stack_ + sysconf(_SC_PAGESIZE), kStackBytes - size_t(sysconf(_SC_PAGESIZE)));
#endif
#ifdef ATTN_OWN_SWITCH
    // attn_switch_stacks() will pop six registers and return to run_thread. The null pointer above takes the place of the return
    // address of run_thread, so that the stack is aligned as after a call.
    auto* top = reinterpret_cast<void**>(stack_ + kStackBytes) - 1;
    *top = nullptr;
    *--top = reinterpret_cast<void*>(&run_thread);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    pointer_ = top;
#else
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_;
    context_.uc_stack.ss_size = kStackBytes;
    makecontext(&context_, &run_thread, 0);
#endif
  }
  const char* stack() const { return stack_; }
  const char* stack_end() const { return stack_ + kStackBytes; }

  // Switches from the scheduler to this fibre. Returns when the fibre calls leave().
  void enter() {
#ifdef ATTN_ASAN
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack_, kStackBytes);
#endif
#ifdef ATTN_OWN_SWITCH
    attn_switch_stacks(&scheduler_, pointer_);
#else
    swapcontext(&scheduler_, &context_);
#endif
#ifdef ATTN_ASAN
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  }
  // Switches from this fibre to the scheduler. `for_good` says that the thread has ended and the fibre is not entered again.
  void leave(bool for_good) {
#ifdef ATTN_ASAN
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_, scheduler_stack_, scheduler_stack_size_);
#else
    (void)for_good;
#endif
#ifdef ATTN_OWN_SWITCH
    attn_switch_stacks(&pointer_, scheduler_);
#else
    swapcontext(&context_, &scheduler_);
#endif
    arrived();
  }
  // Must be called first whenever the fibre gets control; tells AddressSanitizer that stacks have changed.
  void arrived() {
#ifdef ATTN_ASAN
    __sanitizer_finish_switch_fiber(fake_, &scheduler_stack_, &scheduler_stack_size_);
#endif
  }

 private:
  char* stack_;
#ifdef ATTN_OWN_SWITCH
  void* pointer_ = nullptr;
  void* scheduler_ = nullptr;
#else
  ucontext_t context_{}, scheduler_{};
#endif
#ifdef ATTN_ASAN
  void* fake_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_size_ = 0;
#endif
};

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Thread {
  Place place;
  State state = State::ready;
  std::vector<Copy> copies;                // copies since the last group ended
  std::deque<std::vector<Copy>> groups{};  // groups that the thread has not waited for
  unsigned mask = 0;                       // the mask of the exchange in which the thread waits
  size_t given_bytes = 0;                  // how many bytes it gives in that exchange; 0 in __syncwarp()
  std::source_location barrier{};          // the __syncthreads() at which the thread waits
  unsigned exchanges = 0;                  // exchanges begun so far; the parity chooses the buffer of the next one
};

struct Warp {
  unsigned arrived = 0;  // the lanes that wait in an exchange, as bits
  alignas(16) char given[2][kWarp * kMaxExchanged];
};

class Block {
 public:
  void run(dim3 grid, dim3 at, dim3 size, char* shared, size_t shared_bytes, const std::function<void()>& thread) {
    const size_t count = size_t(size.x) * size.y * size.z;
    while (fibres_.size() < count) fibres_.push_back(std::make_unique<Fibre>());
    threads_.assign(count, Thread{});
    warps_.assign((count + kWarp - 1) / kWarp, {});
    shared_ = shared;
    body_ = &thread;
    failure_ = nullptr;
    for (size_t t = 0; t < count; ++t) {
      const auto x = unsigned(t);
      threads_[t].place = {{x % size.x, x / size.x % size.y, x / (size.x * size.y)}, at, grid, size};
      fibres_[t]->begin();
    }
    running_.shared_begin = shared;
    running_.shared_end = shared + shared_bytes;
    running_.threads_begin = reinterpret_cast<const char*>(threads_.data());
    running_.threads_end = reinterpret_cast<const char*>(threads_.data() + threads_.size());
    running_.warps_begin = reinterpret_cast<const char*>(warps_.data());
    running_.warps_end = reinterpret_cast<const char*>(warps_.data() + warps_.size());
    if (observer) observer->block_begins(at);
    order_.resize(count);
    std::iota(order_.begin(), order_.end(), size_t{0});
    if (thread_order == ThreadOrder::backward) std::reverse(order_.begin(), order_.end());
    while (true) {
      if (thread_order == ThreadOrder::shuffled) std::shuffle(order_.begin(), order_.end(), random);
      bool moved = false;
      for (const auto t : order_) {
        if (threads_[t].state != State::ready) continue;
        moved = true;
        current_ = t;
        running_.thread = unsigned(t);
        running_.stack_begin = fibres_[t]->stack();
        running_.stack_end = fibres_[t]->stack_end();
        running = &running_;
        fibres_[t]->enter();
        running = nullptr;
        if (failure_) std::rethrow_exception(failure_);
        if (observer && observer->stops()) throw std::runtime_error("the observer of the kernel has ended it");
      }
      if (!release() && !moved) break;
    }
    const auto waiting = std::count_if(threads_.begin(), threads_.end(), [](const Thread& t) { return t.state != State::done; });
    if (waiting > 0) throw std::runtime_error(deadlock());
    if (observer) observer->block_ends();
  }

  void run_current() {
    fibres_[current_]->arrived();
    try {
      (*body_)();
    } catch (...) {
      failure_ = std::current_exception();
    }
    thread().state = State::done;
    fibres_[current_]->leave(/*for_good=*/true);
  }

  void wait_for_block(const std::source_location& at) {
    if (observer && observer->skips(at)) return;
    thread().barrier = at;
    wait(State::at_barrier);
  }
  void wait_for_warp(unsigned mask, const std::source_location& at) {
    if (!observer || !observer->skips(at)) exchange(mask, nullptr, 0);
  }

  const char* exchange(unsigned mask, const void* value, size_t bytes) {
    auto& mine = thread();
    auto& warp = warps_[current_ / kWarp];
    const unsigned lane = current_ % kWarp;
    if ((mask >> lane & 1) == 0)
      throw std::runtime_error("a lane exchanges values with a mask that does not contain the lane itself");
    char* given = warp.given[mine.exchanges++ % 2];
    if (bytes > 0) std::memcpy(given + lane * kMaxExchanged, value, bytes);
    warp.arrived |= 1u << lane;
    mine.mask = mask;
    mine.given_bytes = bytes;
    wait(State::at_exchange);
    return given;
  }
  void check_source_lane(unsigned mask, unsigned lane) {
    if (lane >= kWarp || (mask >> lane & 1) == 0 || current_ / kWarp * kWarp + lane >= threads_.size())
      throw std::runtime_error("lane " + std::to_string(current_ % kWarp) + " shuffles from lane " + std::to_string(lane) +
                               ", which is not in the mask or does not exist");
  }

  void copy_later(const Copy& copy) {
    const auto to = reinterpret_cast<uintptr_t>(copy.to), from = reinterpret_cast<uintptr_t>(copy.from);
    if (to % copy.bytes != 0 || from % copy.bytes != 0)
      throw std::runtime_error("an asynchronous copy of " + std::to_string(copy.bytes) +
                               " bytes has an address that is not a multiple of that");
    const auto* first = static_cast<const char*>(copy.to);
    if (first < running_.shared_begin || first + copy.bytes > running_.shared_end)
      throw std::runtime_error("an asynchronous copy writes outside of the block's shared memory");
    if (observer) observer->copy_begins(copy.to, copy.from, copy.bytes);
    thread().copies.push_back(copy);
  }
  void end_copy_group() { thread().groups.push_back(std::exchange(thread().copies, {})); }
  void wait_for_copies(size_t groups_left) {
    for (auto& groups = thread().groups; groups.size() > groups_left; groups.pop_front())
      for (const auto& copy : groups.front()) {
        if (copy.from) std::memcpy(copy.to, copy.from, copy.bytes);
        else std::memset(copy.to, 0, copy.bytes);
        if (observer) observer->copy_ends(copy.to, copy.from, copy.bytes);
      }
  }

  const Place& place() const { return threads_[current_].place; }
  char* shared() const { return shared_; }

  ThreadOrder thread_order = ThreadOrder::forward;
  std::mt19937_64 random;

 private:
  Thread& thread() { return threads_[current_]; }
  void wait(State state) {
    thread().state = state;
    fibres_[current_]->leave(/*for_good=*/false);
  }

  // Makes those threads ready whose barrier or exchange is complete. Returns whether there were any.
  bool release() {
    bool any = false;
    for (size_t w = 0; w < warps_.size(); ++w) {
      auto& warp = warps_[w];
      const auto end = std::min(threads_.size(), (w + 1) * kWarp);
      for (size_t t = w * kWarp; t < end; ++t) {
        if (threads_[t].state != State::at_exchange) continue;
        // The last warp may have fewer lanes than its mask names. Lanes that do not exist are not waited for.
        unsigned expected = threads_[t].mask;
        for (unsigned l = 0; l < kWarp; ++l)
          if (w * kWarp + l >= end) expected &= ~(1u << l);
        if ((warp.arrived & expected) != expected) continue;
        for (unsigned l = 0; l < kWarp; ++l)
          if ((expected >> l & 1) != 0) {
            auto& other = threads_[w * kWarp + l];
            if (other.mask != threads_[t].mask || other.given_bytes != threads_[t].given_bytes)
              throw std::runtime_error("lanes " + std::to_string(t % kWarp) + " and " + std::to_string(l) +
                                       " of a warp take part in different exchanges, or with different masks");
            other.state = State::ready;
          }
        warp.arrived &= ~expected;
        any = true;
        const bool whole = size_t(std::popcount(expected)) == end - w * kWarp;
        if (observer) observer->warp_exchanged(unsigned(w), threads_[t].given_bytes == 0, whole);
      }
    }
    if (any) return true;
    const bool all = std::all_of(threads_.begin(), threads_.end(),
                                 [](const Thread& t) { return t.state == State::at_barrier || t.state == State::done; });
    if (!all) return false;
    const Thread* first = nullptr;
    for (auto& t : threads_) {
      if (t.state != State::at_barrier) continue;
      if (!first) first = &t;
      if (t.barrier.line() != first->barrier.line() || std::string_view(t.barrier.file_name()) != first->barrier.file_name())
        throw std::runtime_error("threads of a block wait at different barriers: " + text_of(first->barrier) + " and " +
                                 text_of(t.barrier));
      t.state = State::ready;
    }
    if (first && observer) observer->block_synchronised();
    return first != nullptr;
  }

  static std::string text_of(const std::source_location& at) {
    return std::string(at.file_name()) + ":" + std::to_string(at.line());
  }
  std::string deadlock() const {
    const auto count = [&](State state) {
      return std::to_string(std::count_if(threads_.begin(), threads_.end(), [&](const Thread& t) { return t.state == state; }));
    };
    const auto& at = threads_[0].place.block;
    return "deadlock in block (" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) +
           "): " + count(State::at_barrier) + " threads wait at __syncthreads, " + count(State::at_exchange) +
           " in a warp's exchange, " + count(State::done) + " have ended";
  }

  std::vector<std::unique_ptr<Fibre>> fibres_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<size_t> order_;
  size_t current_ = 0;
  Running running_;
  char* shared_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  std::exception_ptr failure_;
};

Block& block() {
  static Block one;
  return one;
}

void run_thread() { block().run_current(); }

}  // namespace

void set_thread_order(ThreadOrder order, uint64_t seed) {
  block().thread_order = order;
  block().random.seed(seed);
}

namespace {
int64_t multiprocessor_count = 2, l2_size = 64 << 10;
}
int64_t multiprocessors() { return multiprocessor_count; }
int64_t l2_bytes() { return l2_size; }
void set_l2_bytes(int64_t bytes) { l2_size = bytes; }
void set_multiprocessors(int64_t count) { multiprocessor_count = count; }

namespace {
size_t largest_shared = 0;
ThreadOrder block_order = ThreadOrder::forward;
std::mt19937_64 block_random;
}  // namespace
size_t take_largest_shared_bytes() { return std::exchange(largest_shared, 0); }

void set_block_order(ThreadOrder order, uint64_t seed) {
  block_order = order;
  block_random.seed(seed);
}

void sort_by_lowest_bits(const uint64_t* keys, uint64_t* sorted, int64_t count, int bits) {
  std::copy(keys, keys + count, sorted);
  const uint64_t mask = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  std::sort(sorted, sorted + count, [&](uint64_t a, uint64_t b) { return (a & mask) < (b & mask); });
}

void set_observer(Observer* next) { observer = next; }

namespace {

// The most bytes of shared memory of a block, by architecture: CUDA C++ Programming Guide, table "Technical Specifications per
// Compute Capability".
const std::map<int, size_t> kSharedBytes = {{80, 163 << 10}, {86, 99 << 10},   {87, 163 << 10}, {89, 99 << 10},
                                            {90, 227 << 10}, {100, 227 << 10}, {120, 99 << 10}};
constexpr size_t kDefaultSharedBytes = 48 << 10;  // what a kernel can have without cudaFuncSetAttribute
int current_architecture = 90;
size_t shared_limit = kSharedBytes.at(current_architecture);
std::map<const void*, size_t> allowed_shared_bytes;

void check_limit(const char* what, uint64_t given, uint64_t limit) {
  if (given == 0 || given > limit)
    throw std::runtime_error("a launch has " + std::to_string(given) + " " + what + ", expected 1 to " + std::to_string(limit));
}
void check_shared_bytes(size_t bytes) {
  if (bytes > max_shared_bytes())
    throw std::runtime_error("a block needs " + std::to_string(bytes) + " bytes of shared memory, more than the " +
                             std::to_string(max_shared_bytes()) + " that the emulated sm_" +
                             std::to_string(current_architecture) + " has");
}
void check(dim3 grid, dim3 size, size_t shared_bytes, const void* kernel) {
  check_limit("blocks in x", grid.x, 0x7fffffff);
  check_limit("blocks in y", grid.y, 65535);
  check_limit("blocks in z", grid.z, 65535);
  check_limit("threads in z of a block", size.z, 64);
  check_limit("threads in a block", uint64_t(size.x) * size.y * size.z, 1024);
  check_shared_bytes(shared_bytes);
  const auto allowed = allowed_shared_bytes.find(kernel);
  if (kernel != nullptr && shared_bytes > (allowed == allowed_shared_bytes.end() ? kDefaultSharedBytes : allowed->second))
    throw std::runtime_error("a block needs " + std::to_string(shared_bytes) +
                             " bytes of shared memory, more than cudaFuncSetAttribute has allowed its kernel");
}

}  // namespace

void set_architecture(int number) {
  if (!kSharedBytes.contains(number)) throw std::runtime_error("the emulation does not know sm_" + std::to_string(number));
  current_architecture = number;
  shared_limit = kSharedBytes.at(number);
  allowed_shared_bytes.clear();
}
int architecture() { return current_architecture; }
size_t max_shared_bytes() { return shared_limit; }
void set_max_shared_bytes(size_t bytes) { shared_limit = bytes; }
void allow_shared_bytes(const void* kernel, size_t bytes) {
  check_shared_bytes(bytes);
  allowed_shared_bytes[kernel] = std::max(bytes, kDefaultSharedBytes);
}

void run_grid(dim3 grid, dim3 size, size_t shared_bytes, const std::function<void()>& thread, const void* kernel,
              bool begins_early) {
  check(grid, size, shared_bytes, kernel);
  if (observer) observer->launch_begins({kernel, grid, size, shared_bytes, begins_early});
  if (observer && !observer->runs_blocks()) return observer->launch_ends();
  largest_shared = std::max(largest_shared, shared_bytes);
  std::vector<size_t> order(size_t{grid.x} * grid.y * grid.z);
  std::iota(order.begin(), order.end(), size_t{0});
  if (block_order == ThreadOrder::backward) std::reverse(order.begin(), order.end());
  if (block_order == ThreadOrder::shuffled) std::shuffle(order.begin(), order.end(), block_random);
  for (const auto i : order) {
    const dim3 at(unsigned(i % grid.x), unsigned(i / grid.x % grid.y), unsigned(i / grid.x / grid.y));
    // Shared memory is allocated for each block, so that AddressSanitizer finds accesses beyond its end.
    void* memory = nullptr;
    if (posix_memalign(&memory, 128, std::max<size_t>(shared_bytes, 1)) != 0) throw std::bad_alloc();
    const std::unique_ptr<char, decltype(&std::free)> shared(static_cast<char*>(memory), &std::free);
    std::memset(shared.get(), 0xCD, shared_bytes);
    block().run(grid, at, size, shared.get(), shared_bytes, thread);
  }
  if (observer) observer->launch_ends();
}

const Place& place() { return block().place(); }
char* shared_bytes() { return block().shared(); }
void wait_for_block(const std::source_location& at) { block().wait_for_block(at); }
void wait_for_warp(unsigned mask, const std::source_location& at) { block().wait_for_warp(mask, at); }
void check_source_lane(unsigned mask, unsigned lane) { block().check_source_lane(mask, lane); }
void wait_for_previous_kernel() {
  if (observer) observer->previous_kernel_ended();
}
void atomic_access(void* to, size_t bytes) {
  if (observer) observer->atomic_access(to, bytes);
}
void copy_later(void* to, const void* from, size_t bytes) { block().copy_later({to, from, bytes}); }
void end_copy_group() { block().end_copy_group(); }
void wait_for_copies(size_t groups_left) { block().wait_for_copies(groups_left); }
const char* exchange(unsigned mask, const void* value, size_t bytes) { return block().exchange(mask, value, bytes); }

}  // namespace attn::emulation
