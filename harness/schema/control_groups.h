// What the control groups of Linux, which containers, Slurm and systemd use, let this process have: memory and processors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace attnbench {

// A limit of a control group, and where it stands.
struct GroupLimit {
  double value = 0;
  std::filesystem::path file;  // such as /sys/fs/cgroup/system.slice/job.scope/memory.max
};

struct ControlGroups {
  // The bytes that the process can still allocate, by the group in which the fewest are left. The page cache and other memory
  // that the system can reclaim count as free. Nothing without a limit.
  std::optional<GroupLimit> free_bytes;
  // How many processors' time the process may use, such as 1.5, by the smallest quota. Nothing without a quota.
  std::optional<GroupLimit> processors;

  // Reads the groups of this process and all groups that they are in, of versions 1 and 2, as far as this process can see them:
  // in a container, the topmost group is usually its own. `root` is the root of the file system, which tests replace.
  static ControlGroups read(const std::filesystem::path& root = "/");
};

}  // namespace attnbench
