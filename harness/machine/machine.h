// The machine: its processors, memory and system, and what this process may use of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attnbench {

// How many of something this process may use, and what bounds that number, such as "control group (memory.max)".
struct Available {
  int64_t count = 0;
  std::string bound;
  std::string file;  // that holds the limit of the control group; empty where none bounds the number
};

// How many processors this process may run on at once: those of its affinity, or fewer if a control group has a smaller quota.
Available processors_for_this_process();
int64_t available_processors();
// The numbers by which the system knows these processors, those of different cores first: the hardware threads of one core share
// its units, so that two of them are slower than two cores. Empty where the system does not report them.
std::vector<int> available_processor_numbers();
// The same processors in that order. `sibling_lists` has the text of thread_siblings_list for each of them, such as "0,4" or
// "0-1".
std::vector<int> cores_first(const std::vector<int>& processors, const std::vector<std::string>& sibling_lists);

// The bytes of the last-level caches of these processors together, of which each counts once. `folder` describes the processors
// as Linux does. 0 where it does not describe their caches.
int64_t last_level_cache_bytes(const std::vector<int>& processors, const std::string& folder = "/sys/devices/system/cpu");

// The bytes that can be allocated without swapping and within the memory limits of the control groups; at least 1.
Available memory_for_this_process();
int64_t available_memory_bytes();

// All memory of the machine in bytes, however much of it this process may use; 0 where the system does not report it.
int64_t total_memory_bytes();

// The distribution and the kernel in words, such as "Debian GNU/Linux 12 (bookworm), Linux 6.1.0-18-amd64".
std::string system_name();

// The processor's name for people, such as "AMD EPYC 7763 64-Core Processor"; "unknown" where the system does not say it.
std::string cpu_model();

// The name of this machine.
std::string host_name();
// An identifier that changes each time the system starts; empty where the system has none.
std::string boot_id();

}  // namespace attnbench
