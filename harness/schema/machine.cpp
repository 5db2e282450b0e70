#include "harness/schema/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <string_view>

namespace attnbench {

int64_t available_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return sysconf(_SC_NPROCESSORS_ONLN);
}

std::vector<int> available_processor_numbers() {
  std::vector<int> numbers;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) numbers.push_back(i);
  return numbers;
}

int64_t available_memory_bytes() {
  int64_t bytes = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::ifstream meminfo("/proc/meminfo");
  for (std::string word; meminfo >> word;) {
    int64_t kib = 0;
    if (word == "MemAvailable:" && meminfo >> kib) bytes = kib * 1024;
  }
  int64_t limit = 0, used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && std::ifstream("/sys/fs/cgroup/memory.current") >> used)
    bytes = std::min(bytes, limit - used);
  return std::max<int64_t>(bytes, 1);
}

int64_t total_memory_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  for (std::string word; meminfo >> word;) {
    int64_t kib = 0;
    if (word == "MemTotal:" && meminfo >> kib) return kib * 1024;
  }
  return 0;
}

std::string system_name() {
  std::string name;
  utsname kernel{};
  if (uname(&kernel) == 0) name = std::string(kernel.sysname) + " " + kernel.release;
  constexpr std::string_view kKey = "PRETTY_NAME=";
  std::ifstream release("/etc/os-release");
  for (std::string line; std::getline(release, line);) {
    if (!line.starts_with(kKey)) continue;
    auto distribution = line.substr(kKey.size());
    std::erase_if(distribution, [](char c) { return c == '"' || c == '\''; });
    return name.empty() ? distribution : distribution + ", " + name;
  }
  return name;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace attnbench
