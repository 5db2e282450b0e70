// Team: threads that compute the parts of a token together in one parallel region, with cheap barriers between the parts.
#pragma once

#include <ATen/Parallel.h>

#include <atomic>
#include <cstdint>

namespace experiments {

// The work of a team is divided between `size` workers. Each thread of LibTorch's pool stands for one worker or, where there are
// fewer threads, for several, which it goes through one after the other.
class Team {
 public:
  explicit Team(int64_t size) : size_(size) {}
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // How one thread takes part.
  class Member {
   public:
    Member(Team& team, int64_t begin, int64_t end) : team_(team), begin_(begin), end_(end) {}

    // Calls work(begin, end, worker) for the share of each worker of this thread in 0 … count-1, and waits until all workers have
    // done theirs. Shares begin at multiples of `unit`. Every thread must call it in the same order, and work must not throw.
    template <class Work>
    void share(int64_t count, int64_t unit, const Work& work) {
      const auto units = (count + unit - 1) / unit;
      const auto begin_of = [&](int64_t worker) {
        const auto begin = units * worker / team_.size_ * unit;
        return begin < count ? begin : count;
      };
      for (auto worker = begin_; worker < end_; ++worker)
        if (const auto begin = begin_of(worker), end = begin_of(worker + 1); begin < end) work(begin, end, worker);
      team_.wait(end_ - begin_);
    }

   private:
    Team& team_;
    int64_t begin_, end_;  // its workers
  };

  int64_t size() const { return size_; }

  // Runs work(member) on each thread.
  template <class Work>
  void run(const Work& work) {
    at::parallel_for(0, size_, 1, [&](int64_t begin, int64_t end) {
      Member member(*this, begin, end);
      work(member);
    });
  }

 private:
  // Waits until `size` workers have arrived, of which the caller stands for `workers`. A part of a token takes microseconds, so a
  // thread spins. If another thread takes long, another program may have its processor; then this thread sleeps, so that the
  // system can move the other one to this processor.
  void wait(int64_t workers) {
    constexpr int kSpins = 2000;  // tens of microseconds
    const auto round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(workers, std::memory_order_acq_rel) + workers == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      round_.notify_all();
      return;
    }
    for (int spins = 0; spins < kSpins; ++spins) {
      if (round_.load(std::memory_order_acquire) != round) return;
      pause();
    }
    round_.wait(round, std::memory_order_acquire);
  }

  static void pause() {
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
  }

  // Arriving threads write to one cache line, and waiting threads read the other.
  alignas(64) std::atomic<int64_t> arrived_ = 0;
  alignas(64) std::atomic<int> round_ = 0;  // the system can wait for a change of an int without a lock
  int64_t size_;
};

}  // namespace experiments
