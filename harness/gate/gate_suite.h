// The cases of a suite, measured on several builds side by side: what the gate and its calibration judge.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "harness/schema/record.h"
#include "harness/sweep/catalogue.h"

namespace attnbench {

// One build.
struct Side {
  std::string name;  // such as "base" or "candidate"
  WorkerProgram worker;
  double injected_slowdown_percent = 0;
  Record environment = {};
};

struct SuiteCase {
  Case c;
  std::string name;
  std::string unusable = {};  // why there can be no verdict; empty when there can
  struct OfSide {
    std::vector<double> medians = {};           // of each process, milliseconds; or instructions
    std::vector<double> log_ratios = {};        // to the base, of the turns of each process: their median
    std::vector<double> peak_extra_bytes = {};  // of each process
    std::string implementation = {};
  };
  std::vector<OfSide> sides = {};  // the first is the base
};

struct SuiteOptions {
  std::string file;                   // a sweep
  std::vector<std::string> settings;  // key=value, instead of the file's
  bool instructions = false;          // count instructions, on AVX2 kernels and one thread, instead of taking time
  bool quiet = false;                 // no progress on standard error
  uint64_t seed = 0;                  // of the order of runs
};

class GateSuite {
 public:
  // Reads the suite as the second side knows it. Throws UsageError for a wrong file, or a build that does not answer.
  GateSuite(const SuiteOptions& options, std::vector<Side> sides);

  // Plans and verifies every case on every side. What cannot be compared is unusable and says why; what no side can run is no
  // case of theirs. Throws UsageError when none is left.
  void check();
  // One process a side of each of these cases, in random order.
  void measure(std::vector<size_t> cases);
  // Once a side of each case, by callgrind.
  void count_instructions();

  void note(const std::string& text) const;

  const std::vector<SuiteCase>& cases() const { return cases_; }
  const std::vector<Side>& sides() const { return sides_; }

 private:
  void measure(SuiteCase& suite_case);

  SuiteOptions options_;
  std::vector<Side> sides_;
  std::vector<SuiteCase> cases_;
  std::mt19937_64 random_;
};

}  // namespace attnbench
