// Tests of the order of processors, and of their caches on a made tree of files.
#include "harness/machine/machine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace attnbench {
namespace {

TEST(Machine, ProcessorsOfDifferentCoresComeFirst) {
  EXPECT_EQ(cores_first({0, 1, 2, 3}, {"0-1", "0-1", "2-3", "2-3"}), (std::vector<int>{0, 2, 1, 3}));
  EXPECT_EQ(cores_first({0, 1, 4, 5}, {"0,4", "1,5", "0,4", "1,5"}), (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(cores_first({2, 3, 7}, {"", "", ""}), (std::vector<int>{2, 3, 7}));
}

// Processors 0 and 1 share a last-level cache of 32 MiB, and 2 and 3 another. Each has caches of its own before it.
TEST(Machine, EachLastLevelCacheOfTheProcessorsCountsOnce) {
  const TempFolder folder;
  const auto write_cache = [&](int processor, int index, int level, const char* size, const std::string& shared) {
    const auto cache =
        std::filesystem::path(folder.path()) / ("cpu" + std::to_string(processor)) / "cache" / ("index" + std::to_string(index));
    std::filesystem::create_directories(cache);
    std::ofstream(cache / "level") << level << "\n";
    std::ofstream(cache / "size") << size << "\n";
    std::ofstream(cache / "shared_cpu_list") << shared << "\n";
  };
  for (int processor = 0; processor < 4; ++processor) {
    write_cache(processor, 0, 1, "48K", std::to_string(processor));
    write_cache(processor, 1, 3, "32768K", processor < 2 ? "0-1" : "2-3");
    write_cache(processor, 2, 2, "1024K", std::to_string(processor));
  }
  const auto bytes = [&](const std::vector<int>& processors) { return last_level_cache_bytes(processors, folder.path()); };
  EXPECT_EQ(bytes({0}), int64_t{32} << 20);
  EXPECT_EQ(bytes({0, 1}), int64_t{32} << 20);
  EXPECT_EQ(bytes({1, 2, 3}), int64_t{64} << 20);
  EXPECT_EQ(bytes({7}), 0);
}

}  // namespace
}  // namespace attnbench
