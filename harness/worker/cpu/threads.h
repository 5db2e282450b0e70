// Sets the number of threads of PyTorch's operations.
#pragma once

#include <cstdint>

namespace attnbench {

// Throws std::runtime_error if the system does not let this process have as many threads (ulimit -u): PyTorch would wait for them
// forever.
void use_threads(int64_t count);

}  // namespace attnbench
