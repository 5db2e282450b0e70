// The processors and the memory that this process may use.
#pragma once

#include <cstdint>
#include <vector>

namespace attnbench {

// How many processors this process may run on.
int64_t available_processors();
// The system's numbers of these processors; empty where the system does not report them.
std::vector<int> available_processor_numbers();

// How much memory can be allocated without swapping and within the limit of the control group.
int64_t available_memory_bytes();

}  // namespace attnbench
