// Measures the cases of a suite on several builds side by side. The gate and its calibration decide from these measurements.
#pragma once

#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/process/worker_process.h"
#include "harness/schema/record.h"

namespace attnbench {

// One of the builds that are compared.
struct Side {
  std::string name;  // such as "base" or "candidate"
  WorkerProgram worker;
  double injected_slowdown_percent = 0;
  Record environment = {};  // the worker's build and machine
};

struct SuiteCase {
  Case c;
  std::string name;
  std::string unusable = {};  // why the builds cannot be compared on this case; empty when they can
  struct OfSide {
    // One value for each process.
    std::vector<double> medians = {};           // milliseconds, or the number of instructions if these are counted
    std::vector<double> log_ratios = {};        // the median, over the turns, of log(this side's time / the base's time)
    std::vector<double> peak_extra_bytes = {};  // memory above the inputs
    std::string implementation = {};            // the implementation that ran
  };
  std::vector<OfSide> sides = {};  // in the order of the suite's sides; the first is the base
};

struct SuiteOptions {
  std::string file;                   // a sweep file
  std::vector<std::string> settings;  // key=value; replaces the value in the file
  bool instructions = false;          // count the instructions of the AVX2 kernels on one thread instead of measuring time
  bool quiet = false;                 // print no progress to standard error
  uint64_t seed = 0;                  // seed of the order in which cases and builds run
};

class GateSuite {
 public:
  // Reads the suite, whose methods must be ones that the second side has. Throws UsageError for a wrong file or a worker that
  // cannot be started, and WorkerError for a worker that does not answer.
  GateSuite(SuiteOptions options, std::vector<Side> sides);

  // Plans and verifies every case on every side. A case becomes unusable, with the reason, if a side cannot run it or does not
  // agree with the reference on it. Cases that no side supports are dropped. Throws UsageError if no case is left.
  void check();
  // Takes the cases with these indices in random order. For each it runs one process of each side, all at the same time, and adds
  // what they measured to the case. A case becomes unusable if one of its processes fails.
  void measure(std::vector<size_t> cases);
  // Counts the instructions of each case once on each side, with callgrind.
  void count_instructions();

  // Prints a line of progress to standard error, unless the options say quiet.
  void note(const std::string& text) const;

  const SuiteOptions& options() const { return options_; }
  const std::vector<SuiteCase>& cases() const { return cases_; }
  const std::vector<Side>& sides() const { return sides_; }

 private:
  void check(size_t side, std::vector<bool>& supported);
  void measure(SuiteCase& suite_case);

  SuiteOptions options_;
  std::vector<Side> sides_;
  std::vector<SuiteCase> cases_;
  std::mt19937_64 random_;
};

}  // namespace attnbench
