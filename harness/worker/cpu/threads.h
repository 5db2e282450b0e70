// Sets the number of threads of PyTorch's operations.
#pragma once

#include <cstdint>

namespace attnbench {

// Makes PyTorch's operations use `count` threads. First checks that this process can start as many threads as PyTorch will;
// throws std::runtime_error if not (ulimit -u), since PyTorch would wait for them forever.
void use_threads(int64_t count);

}  // namespace attnbench
