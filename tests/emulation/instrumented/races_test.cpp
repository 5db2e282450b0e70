// Tests that no kernel has a race, that each of their barriers is needed, and that the detector finds the races of faulty
// kernels.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

#include "tests/emulation/instrumented/faulty_kernels.h"
#include "tests/emulation/instrumented/kernels_under_test.h"
#include "tests/emulation/instrumented/race_detector.h"

namespace attn::emulation {
namespace {

// What the detector reports when `run` runs, with a barrier left out or none.
std::vector<std::string> reports_of(const std::function<void()>& run, const Barrier& left_out = "") {
  RaceDetector detector;
  if (!left_out.empty()) detector.leave_out(left_out);
  set_observer(&detector);
  try {
    run();
  } catch (const std::exception& error) {
    // A kernel without a barrier may also fail in another way. What matters is whether the detector has found the race.
    if (left_out.empty()) ADD_FAILURE() << error.what();
  }
  set_observer(nullptr);
  return detector.reports();
}
void expect_report(const std::function<void()>& run, const std::string& pattern) {
  const auto reports = reports_of(run);
  ASSERT_FALSE(reports.empty()) << "expected: " << pattern;
  EXPECT_TRUE(std::regex_search(reports[0], std::regex(pattern))) << reports[0] << "\nexpected: " << pattern;
}
void expect_none(const std::function<void()>& run) {
  const auto reports = reports_of(run);
  EXPECT_TRUE(reports.empty()) << reports[0];
}

TEST(RaceDetector, FindsMissingBarriers) {
  expect_none(reads_after_a_barrier);
  expect_report(reads_without_a_barrier,
                R"(^barrier_kernel: in block 0, thread 32 \(warp 1, lane 0\) writes byte 128 of shared memory at )"
                R"(tests/emulation/instrumented/faulty_kernels.cpp:\d+, and nothing orders this after thread 31 )"
                R"(\(warp 0, lane 31\) read it at tests/emulation/instrumented/faulty_kernels.cpp:\d+$)");
  expect_report(writes_after_reads_without_a_barrier, R"(thread 40 \(.*\) writes byte 0 .*after thread 0 \(.*\) read it)");
}

TEST(RaceDetector, OnlySyncwarpOrdersTheLanesOfAWarp) {
  expect_none(lanes_read_after_syncwarp);
  expect_report(lanes_read_after_a_shuffle, "^warp_kernel.*thread 1 .*reads byte 0 .*thread 0 .* wrote it");
  expect_report(warps_read_after_syncwarp, "^warp_kernel.*shared memory");
}

TEST(RaceDetector, NothingOrdersBlocks) {
  expect_report(blocks_write_the_same_element, "block 1, thread 0 .* writes .*global memory.*thread 0 .* of block 0 wrote it");
  expect_none(blocks_add_atomically);
  expect_report(blocks_read_what_others_add_atomically, "global memory");
}

TEST(RaceDetector, AsynchronousCopiesWriteUntilTheyAreWaitedFor) {
  expect_none(reads_a_copy_after_waiting);
  expect_report(reads_a_copy_before_waiting, "reads byte 4 of shared memory.*thread 0 .* wrote it");
}

TEST(RaceDetector, FindsAccessesBeforeTheKernelBeforeHasEnded) {
  expect_none([] { writes_early(/*waits=*/true, /*begins_early=*/true); });
  expect_none([] { writes_early(/*waits=*/false, /*begins_early=*/false); });
  expect_report([] { writes_early(/*waits=*/false, /*begins_early=*/true); },
                "^early_kernel: thread 5 writes global memory at .*, before it has waited for the kernel before this one$");
}

TEST(RaceDetector, FindsMisalignedVectors) {
  expect_report(loads_a_misaligned_vector, "^vector_kernel: thread 0 accesses 16 bytes at an address that is not a multiple");
}

// A run without a barrier left out. Two tests need all of them, and they take most of the time.
struct CompleteRun {
  const KernelRun* run;
  std::vector<std::string> reports;
  std::set<Barrier> barriers;
};
const std::vector<CompleteRun>& complete_runs() {
  static const auto all = [] {
    std::vector<CompleteRun> runs;
    for (const auto& run : kernel_runs()) {
      RaceDetector detector;
      set_observer(&detector);
      run.run();
      set_observer(nullptr);
      runs.push_back({&run, detector.reports(), detector.barriers()});
    }
    return runs;
  }();
  return all;
}

TEST(Kernels, HaveNoRaces) {
  for (const auto& run : complete_runs())
    for (const auto& report : run.reports) ADD_FAILURE() << run.run->name << ": " << report;
}

// The lines of the kernels' sources with a barrier, and whether the comment there says that it is "redundant: " and why it stays.
std::map<Barrier, bool> barriers_in_sources() {
  std::map<Barrier, bool> barriers;
  const std::filesystem::path root = ATTN_SOURCES;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "attn")) {
    const auto path = entry.path();
    if (path.string().find("/cuda/") == std::string::npos || !entry.is_regular_file() || path.extension() == ".md") continue;
    std::ifstream file(path);
    int number = 1;
    for (std::string line; std::getline(file, line); ++number)
      if (std::regex_search(line.substr(0, line.find("//")), std::regex(R"(\b__sync(threads|warp)\()")))
        barriers[std::filesystem::relative(path, root).string() + ":" + std::to_string(number)] =
            line.find("// redundant: ") != std::string::npos;
  }
  return barriers;
}

TEST(Kernels, NeedEachOfTheirBarriers) {
  std::map<Barrier, std::vector<const KernelRun*>> passing;
  for (const auto& run : complete_runs())
    for (const auto& barrier : run.barriers) passing[barrier].push_back(run.run);
  const auto barriers = barriers_in_sources();
  EXPECT_GE(barriers.size(), 10U);
  for (const auto& [barrier, redundant] : barriers) {
    if (passing[barrier].empty()) {
      ADD_FAILURE() << "no test passes the barrier " << barrier;
      continue;
    }
    const bool found =
        std::any_of(passing[barrier].begin(), passing[barrier].end(),
                    [&, &left_out = barrier](const KernelRun* run) { return !reports_of(run->run, left_out).empty(); });
    EXPECT_EQ(found, !redundant) << barrier
                                 << (found
                                         ? ": the comment calls the barrier redundant, but without it there is a race"
                                         : ": without this barrier there is no race; either remove it, or say in its line why it "
                                           "stays (// redundant: …), or let a test reach what it protects");
  }
}

}  // namespace
}  // namespace attn::emulation
