// Reads the files of both versions of control groups, from this process's own group up to the topmost that is visible.
#include "harness/machine/control_groups.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

namespace attnbench {
namespace {

namespace fs = std::filesystem;

// Where version 1 has no limit, the file holds a number close to 2^63.
constexpr double kNoLimit = 1LL << 60;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// The number that a file begins with; nothing if there is none, as in "max".
std::optional<double> number_in(const fs::path& file) {
  double number = 0;
  if (std::ifstream(file) >> number) return number;
  return std::nullopt;
}

// The sum of the values of these names in a file of lines "name value".
double sum_in(const fs::path& file, const std::vector<std::string>& names) {
  std::ifstream stream(file);
  double sum = 0, value = 0;
  for (std::string name; stream >> name >> value;)
    if (std::find(names.begin(), names.end(), name) != names.end()) sum += value;
  return sum;
}

void take_smaller(std::optional<GroupLimit>& limit, double value, const fs::path& file) {
  if (!limit || value < limit->value) limit = GroupLimit{value, file};
}

// Takes what is left of the bytes in the file `limit`.
void take_memory(std::optional<GroupLimit>& free_bytes, const fs::path& limit, const fs::path& used,
                 const std::vector<std::string>& reclaimable) {
  const auto bytes = number_in(limit), current = number_in(used);
  if (!bytes || !current || *bytes >= kNoLimit) return;
  const auto kept = std::max(0., *current - sum_in(limit.parent_path() / "memory.stat", reclaimable));
  take_smaller(free_bytes, std::max(0., *bytes - kept), limit);
}

// The folder of a group and those of the groups that it is in, up to the topmost one that is visible.
std::vector<fs::path> folders_up_to(const fs::path& own, const fs::path& topmost) {
  std::vector<fs::path> folders = {own};
  while (folders.back() != topmost && folders.back() != folders.back().parent_path())
    folders.push_back(folders.back().parent_path());
  return folders;
}

// By the name of the controller, which is empty for version 2: the path of the process's group in its hierarchy.
std::map<std::string, fs::path> own_groups(const fs::path& root) {
  std::map<std::string, fs::path> groups;
  std::ifstream stream(root / "proc/self/cgroup");
  for (std::string line; std::getline(stream, line);) {  // 4:memory:/some/group, and 0::/some/group in version 2
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    if (controllers.empty()) groups[""] = path;
    for (const auto& controller : split(controllers, ',')) groups[controller] = path;
  }
  return groups;
}

}  // namespace

ControlGroups::ControlGroups(fs::path root) : root_(std::move(root)) {
  const auto groups = own_groups(root_);
  std::ifstream stream(root_ / "proc/self/mountinfo");
  for (std::string line; std::getline(stream, line);) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    const auto place = split(line.substr(0, dash), ' '), kind = split(line.substr(dash + 3), ' ');
    if (place.size() < 5 || kind.size() < 3 || !kind[0].starts_with("cgroup")) continue;
    const fs::path shown = place[3], mount = root_ / fs::path(place[4]).relative_path();
    const auto controllers = kind[0] == "cgroup2" ? std::vector<std::string>{""} : split(kind[2], ',');
    for (const auto& controller : controllers) {
      const auto group = groups.find(controller);
      if (group == groups.end() || folders_.contains(controller)) continue;  // of several mounts, the first counts
      // The mount shows the groups below `shown`. If the own group is not among them, the topmost that is shown is the nearest.
      const auto below = group->second.lexically_relative(shown);
      const bool is_below = !below.empty() && *below.begin() != "..";
      folders_[controller] = folders_up_to(is_below && below != "." ? mount / below : mount, mount);
    }
  }
}

const std::vector<fs::path>& ControlGroups::folders(const std::string& controller) const {
  static const std::vector<fs::path> none;
  const auto found = folders_.find(controller);
  return found == folders_.end() ? none : found->second;
}

std::optional<GroupLimit> ControlGroups::without_root(std::optional<GroupLimit> limit) const {
  if (limit) limit->file = "/" / limit->file.lexically_relative(root_);
  return limit;
}

std::optional<GroupLimit> ControlGroups::free_bytes() const {
  std::optional<GroupLimit> smallest;
  for (const auto& group : folders(""))
    for (const auto* limit : {"memory.max", "memory.high"})  // above `high`, the process is slowed down
      take_memory(smallest, group / limit, group / "memory.current", {"active_file", "inactive_file", "slab_reclaimable"});
  for (const auto& group : folders("memory"))
    take_memory(smallest, group / "memory.limit_in_bytes", group / "memory.usage_in_bytes",
                {"total_active_file", "total_inactive_file"});
  return without_root(smallest);
}

std::optional<GroupLimit> ControlGroups::processors() const {
  std::optional<GroupLimit> smallest;
  double quota = 0, period = 0;
  for (const auto& group : folders(""))
    if (std::ifstream(group / "cpu.max") >> quota >> period && period > 0)
      take_smaller(smallest, quota / period, group / "cpu.max");
  for (const auto& group : folders("cpu")) {
    const auto quota_us = number_in(group / "cpu.cfs_quota_us"), period_us = number_in(group / "cpu.cfs_period_us");
    if (quota_us && period_us && *quota_us > 0 && *period_us > 0)
      take_smaller(smallest, *quota_us / *period_us, group / "cpu.cfs_quota_us");
  }
  return without_root(smallest);
}

}  // namespace attnbench
