// The cases of a suite, measured on several builds side by side. The gate and its calibration decide from these measurements.
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
  Record environment = {};
};

struct SuiteCase {
  Case c;
  std::string name;
  std::string unusable = {};  // why the builds cannot be compared on this case; empty when they can
  struct OfSide {
    std::vector<double> medians = {};           // of each process: milliseconds, or instructions where these are counted
    std::vector<double> log_ratios = {};        // of each process: the median over its turns of log(its time / time of the base)
    std::vector<double> peak_extra_bytes = {};  // of each process
    std::string implementation = {};
  };
  std::vector<OfSide> sides = {};  // in the order of the suite's sides; the first is the base
};

struct SuiteOptions {
  std::string file;                   // a sweep file
  std::vector<std::string> settings;  // key=value, in place of what the file says
  bool instructions = false;          // count the instructions of the AVX2 kernels on one thread instead of taking times
  bool quiet = false;                 // no progress on standard error
  uint64_t seed = 0;                  // of the order of runs
};

class GateSuite {
 public:
  // Reads the suite with the methods that the second side has. Throws UsageError for a wrong file, and for a worker that does not
  // answer.
  GateSuite(SuiteOptions options, std::vector<Side> sides);

  // Plans and verifies every case on every side. A case that a side cannot run, or on which it does not verify, becomes unusable
  // with the reason. Cases that no side supports are dropped; throws UsageError when no case is left.
  void check();
  // Starts one process of each side for each of these cases, in random order, and adds what they measured to the cases.
  void measure(std::vector<size_t> cases);
  // Counts the instructions of each case once on each side, with callgrind.
  void count_instructions();

  // Prints progress, unless the options say quiet.
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
