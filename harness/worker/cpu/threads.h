// The threads of PyTorch's operations: how many there are, and on which processors they run.
#pragma once

#include <cstdint>
#include <vector>

namespace attnbench {

// Makes PyTorch's operations use `count` threads. First checks that this process can start as many threads as PyTorch will;
// throws std::runtime_error if not (ulimit -u), since PyTorch would wait for them forever.
void use_threads(int64_t count);

// Lets the calling thread run on these processors only. Returns whether the system allowed it; errno says why not.
bool run_on(const std::vector<int>& processors);

// As long as it exists, each of the `count` threads stays on a processor of its own. The system may otherwise start two of them
// on the same processor after a wait, such as that for a turn, and leave them there for the whole turn. Does nothing for a single
// thread, or for more threads than processors.
class BoundThreads {
 public:
  explicit BoundThreads(int64_t count);
  ~BoundThreads();
  BoundThreads(const BoundThreads&) = delete;
  BoundThreads& operator=(const BoundThreads&) = delete;

  bool are_bound() const { return count_ > 0; }

 private:
  int64_t count_ = 0;  // 0 if nothing is bound
  std::vector<int> processors_;
};

}  // namespace attnbench
