// What this process may use of the machine.
#pragma once

#include <cstdint>
#include <vector>

namespace attnbench {

// Processors this process may run on.
int64_t available_processors();
std::vector<int> available_processor_numbers();  // the system's; empty where it does not say

// Memory that can be taken without swapping, within the control group's limit.
int64_t available_memory_bytes();

}  // namespace attnbench
