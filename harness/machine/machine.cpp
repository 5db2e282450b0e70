// Asks Linux for processors, memory and names, and takes the limits of control groups into account.
#include "harness/machine/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "harness/machine/control_groups.h"

namespace attnbench {

namespace {

// The smaller of `all` and the limit of a control group, of which there is at least 1.
Available bounded(Available all, const std::optional<GroupLimit>& limit) {
  if (!limit || limit->value >= double(all.count)) return all;
  const auto name = limit->file.filename().string();
  return {std::max<int64_t>(1, int64_t(limit->value)), "control group (" + name + ")", limit->file.string()};
}

const ControlGroups& control_groups() {
  static const ControlGroups groups;
  return groups;
}

}  // namespace

Available processors_for_this_process() {
  const int64_t online = sysconf(_SC_NPROCESSORS_ONLN);
  Available processors{online, "the machine", ""};
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) != online) processors = {CPU_COUNT(&set), "affinity", ""};
  return bounded(processors, control_groups().processors());
}

int64_t available_processors() { return processors_for_this_process().count; }

std::vector<int> available_processor_numbers() {
  std::vector<int> numbers;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set)) numbers.push_back(i);
  std::vector<std::string> siblings;
  for (const int number : numbers) {
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(number) + "/topology/thread_siblings_list");
    std::getline(file, siblings.emplace_back());
  }
  return cores_first(numbers, siblings);
}

std::vector<int> cores_first(const std::vector<int>& processors, const std::vector<std::string>& sibling_lists) {
  std::map<std::string, int> used_of_core;
  std::vector<std::pair<int, int>> ranked;  // how many processors of the same core come before, and the processor
  for (size_t i = 0; i < processors.size(); ++i) {
    const auto& siblings = sibling_lists.at(i);
    ranked.emplace_back(siblings.empty() ? 0 : used_of_core[siblings]++, processors[i]);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<int> ordered;
  for (const auto& [rank, processor] : ranked) ordered.push_back(processor);
  return ordered;
}

int64_t last_level_cache_bytes(const std::vector<int>& processors, const std::string& folder) {
  int last_level = 0;
  std::map<std::string, int64_t> bytes_of_cache;  // by the processors that share it
  for (const int processor : processors)
    for (int index = 0;; ++index) {
      const auto cache = folder + "/cpu" + std::to_string(processor) + "/cache/index" + std::to_string(index) + "/";
      std::ifstream level_file(cache + "level"), size_file(cache + "size"), shared_file(cache + "shared_cpu_list");
      int level = 0;
      int64_t kib = 0;
      std::string shared;
      if (!(level_file >> level && size_file >> kib && shared_file >> shared)) break;
      if (level > last_level) last_level = level, bytes_of_cache.clear();
      if (level == last_level) bytes_of_cache[shared] = kib * 1024;
    }
  int64_t bytes = 0;
  for (const auto& [shared_by, of_cache] : bytes_of_cache) bytes += of_cache;
  return bytes;
}

Available memory_for_this_process() {
  int64_t bytes = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::ifstream meminfo("/proc/meminfo");
  for (std::string word; meminfo >> word;) {
    int64_t kib = 0;
    if (word == "MemAvailable:" && meminfo >> kib) bytes = kib * 1024;
  }
  return bounded({std::max<int64_t>(bytes, 1), "the machine", ""}, control_groups().free_bytes());
}

int64_t available_memory_bytes() { return memory_for_this_process().count; }

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

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
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
