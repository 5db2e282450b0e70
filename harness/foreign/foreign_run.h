// Reads what other programs write about benchmarks. The commands that compare such files and that run a benchmark command read
// them here and nowhere else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/foreign/measures.h"

namespace attnbench {

// What a run of a benchmark program says about one of its benchmarks.
struct ForeignResult {
  std::string name;  // as the file has it; it may hold any character
  double value = 0;  // the median over the repetitions in the run, in the unit of the measure; finite and above 0 without a fault
  std::string fault;  // why there is no value; empty if there is one
};

// One run of a benchmark program. Calls and repetitions within it are not independent of one another, so that each of its
// benchmarks has one value, whatever their number.
struct ForeignRun {
  ForeignFormat format = ForeignFormat::google_benchmark;
  ForeignMeasure measure;
  std::string machine;                 // what the file says about it, such as a name and a processor; empty if it says nothing
  std::vector<ForeignResult> results;  // at least one, each with a name of its own, in the order of the file
  std::vector<std::string> left_out;   // benchmarks that do not have the measure
};

// The most bytes of a file and of a name, and the most benchmarks.
inline constexpr size_t kLongestForeignFile = size_t{64} << 20, kLongestForeignName = 1024, kMostForeignResults = 20'000;

// Reads a run from the text of a file whose format its contents tell. `measure` names one of measures_of(); empty for the
// format's first. Throws UsageError, which begins with `where`, for text that is none of the formats, breaks its format, gives
// two values to one name, or has no benchmark with the measure.
ForeignRun read_foreign_run(std::string_view text, const std::string& where, const std::string& measure = "");
// The same from a file.
ForeignRun read_foreign_file(const std::string& path, const std::string& measure = "");

// Whether the path is a file rather than a folder of records, so that read_foreign_file() is to read it.
bool is_foreign_file(const std::string& path);

}  // namespace attnbench
