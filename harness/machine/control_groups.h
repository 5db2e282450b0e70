// What the control groups of Linux, which containers, Slurm and systemd use, let this process have: memory and processors.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace attnbench {

// A limit of a control group, and where it stands.
struct GroupLimit {
  double value = 0;
  std::filesystem::path file;  // such as /sys/fs/cgroup/system.slice/job.scope/memory.max
};

// The groups of this process and all groups that they are in, of versions 1 and 2, as far as this process can see them: in a
// container, the topmost group is usually its own. They are found once; the limits are read by each call.
class ControlGroups {
 public:
  // `root` is the root of the file system, which tests replace.
  explicit ControlGroups(std::filesystem::path root = "/");

  // The bytes that the process can still allocate, by the group in which the fewest are left. The page cache and other memory
  // that the system can reclaim count as free. Nothing without a limit.
  std::optional<GroupLimit> free_bytes() const;
  // How many processors' time the process may use, such as 1.5, by the smallest quota. Nothing without a quota.
  std::optional<GroupLimit> processors() const;

 private:
  // The folders of the process's own group and of those that it is in, from the inside, by the name of the controller, which is
  // empty for version 2.
  const std::vector<std::filesystem::path>& folders(const std::string& controller) const;
  // The limit with its file as the process knows it, without the root of a test.
  std::optional<GroupLimit> without_root(std::optional<GroupLimit> limit) const;

  std::filesystem::path root_;
  std::map<std::string, std::vector<std::filesystem::path>> folders_;
};

}  // namespace attnbench
