// The machine: its processors, memory and system, and what this process may use of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attnbench {

// How many processors this process may run on.
int64_t available_processors();
// The numbers by which the system knows these processors; empty where the system does not report them.
std::vector<int> available_processor_numbers();

// The bytes that can be allocated without swapping and within the memory limit of the control group; at least 1.
int64_t available_memory_bytes();

// All memory of the machine in bytes, however much of it this process may use; 0 where the system does not report it.
int64_t total_memory_bytes();

// The distribution and the kernel in words, such as "Debian GNU/Linux 12 (bookworm), Linux 6.1.0-18-amd64".
std::string system_name();

// The name of this machine.
std::string host_name();
// An identifier that changes each time the system starts; empty where the system has none.
std::string boot_id();

}  // namespace attnbench
