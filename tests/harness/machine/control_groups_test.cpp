// Tests of the limits of control groups, on made trees of files.
#include "harness/machine/control_groups.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/temp_folder.h"

namespace attnbench {
namespace {

class ControlGroupsTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const auto file = std::filesystem::path(folder_.path()) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  ControlGroups read() const { return ControlGroups(folder_.path()); }

  void mount_version_2(const std::string& own, const std::string& shown = "/") {
    write("proc/self/cgroup", "0::" + own + "\n");
    write("proc/self/mountinfo", "22 1 0:20 / /proc rw - proc proc rw\n30 23 0:26 " + shown +
                                     " /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  void limit(const std::string& group, const std::string& max, const std::string& current, const std::string& stat = "") {
    write("sys/fs/cgroup" + group + "/memory.max", max);
    write("sys/fs/cgroup" + group + "/memory.current", current);
    write("sys/fs/cgroup" + group + "/memory.stat", stat);
  }

  TempFolder folder_;
};

TEST_F(ControlGroupsTest, WithoutGroupsThereIsNoLimit) {
  EXPECT_FALSE(read().free_bytes());
  EXPECT_FALSE(read().processors());
  write("proc/self/cgroup", "garbage\n::\n0::/x\n");
  write("proc/self/mountinfo", "garbage\n - cgroup2\n1 2 3 - cgroup2 x y\n");
  EXPECT_FALSE(read().free_bytes());
}

TEST_F(ControlGroupsTest, TheSmallestLimitOnTheWayUpCounts) {
  mount_version_2("/system.slice/job_7/task_0");
  limit("/system.slice/job_7/task_0", "max\n", "100\n");
  limit("/system.slice/job_7", "1000\n", "400\n");
  limit("/system.slice", "900\n", "100\n");
  EXPECT_EQ(read().free_bytes().value().value, 600);
  EXPECT_EQ(read().free_bytes().value().file, "/sys/fs/cgroup/system.slice/job_7/memory.max");
  limit("/system.slice", "900\n", "500\n");
  EXPECT_EQ(read().free_bytes().value().value, 400);
  write("sys/fs/cgroup/system.slice/job_7/memory.high", "700\n");
  EXPECT_EQ(read().free_bytes().value().value, 300);
  // A sibling of the own group does not count.
  limit("/system.slice/job_8", "10\n", "9\n");
  EXPECT_EQ(read().free_bytes().value().value, 300);
}

TEST_F(ControlGroupsTest, MemoryThatCanBeReclaimedCountsAsFree) {
  mount_version_2("/");
  limit("", "1000\n", "900\n", "anon 100\nfile 800\nshmem 100\ninactive_file 500\nactive_file 200\nslab_reclaimable 50\n");
  EXPECT_EQ(read().free_bytes().value().value, 850);
  limit("", "1000\n", "1200\n", "anon 1200\n");
  EXPECT_EQ(read().free_bytes().value().value, 0);
}

TEST_F(ControlGroupsTest, InAContainerTheTopmostVisibleGroupIsItsOwn) {
  // With a namespace of its own, the path is relative to the mount; without one, the mount shows a part of the host's tree.
  mount_version_2("/");
  limit("", "1000\n", "400\n");
  EXPECT_EQ(read().free_bytes().value().value, 600);
  mount_version_2("/docker/abc", "/docker/abc");
  EXPECT_EQ(read().free_bytes().value().value, 600);
  EXPECT_EQ(read().free_bytes().value().file, "/sys/fs/cgroup/memory.max");
  mount_version_2("/docker/abc/worker", "/docker/abc");
  limit("/worker", "300\n", "0\n");
  EXPECT_EQ(read().free_bytes().value().value, 300);
  mount_version_2("/../other", "/");
  EXPECT_EQ(read().free_bytes().value().value, 600);
}

TEST_F(ControlGroupsTest, ControllersOfVersionOneAreFoundByTheirMounts) {
  write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/slurm/job_7\n2:cpu,cpuacct:/quota\n0::/\n");
  write("proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
  EXPECT_FALSE(read().free_bytes());
  write("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "1000\n");
  write("sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes", "700\n");
  write("sys/fs/cgroup/memory/slurm/job_7/memory.stat", "active_file 1\ntotal_active_file 100\ntotal_inactive_file 200\n");
  EXPECT_EQ(read().free_bytes().value().value, 600);
  EXPECT_EQ(read().free_bytes().value().file, "/sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes");
  write("sys/fs/cgroup/cpu,cpuacct/quota/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/quota/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(read().processors());
  write("sys/fs/cgroup/cpu,cpuacct/quota/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(read().processors().value().value, 1.5);
}

TEST_F(ControlGroupsTest, TheSmallestQuotaOfProcessorsCounts) {
  mount_version_2("/a/b");
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_FALSE(read().processors());
  write("sys/fs/cgroup/a/cpu.max", "100000 100000\n");
  EXPECT_EQ(read().processors().value().value, 1);
  EXPECT_EQ(read().processors().value().file, "/sys/fs/cgroup/a/cpu.max");
}

}  // namespace
}  // namespace attnbench
