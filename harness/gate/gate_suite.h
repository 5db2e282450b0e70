// Measures the cases of a suite on several builds side by side. The gate and its calibration decide from these measurements.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness/foreign/measures.h"
#include "harness/process/worker_process.h"
#include "harness/schema/record.h"

namespace attnbench {

// A copy of a repository with the files of a side's methods.
struct SideFiles {
  std::filesystem::path root;
  std::filesystem::path methods;  // the folder in it to which the paths of Python files in the names of methods are relative
};

// One of the builds, or of the states of a repository with methods, that are compared.
struct Side {
  std::string name;  // such as "base" or "candidate"
  WorkerProgram worker;
  double injected_slowdown_percent = 0;
  Record environment = {};              // the worker's build and machine
  std::optional<SideFiles> files = {};  // only for a state of a repository
  bool may_lack_files = false;          // whether a method or a plug-in that is not in `files` makes a case new and is no error
  std::string unusable = {};            // why nothing can be measured on this side; empty if it can
  Json source = {};                     // for a state of a repository: commit, uncommitted_changes and lacking
};

struct SuiteCase {
  Case c;
  std::string name = {};      // in full, as full_names() makes it
  std::string label = {};     // the label of the method, if it has one
  std::string unusable = {};  // why the sides cannot be compared on this case; empty if they can
  std::string lacking = {};   // what the base lacks, so that the case counts as new
  // What is measured of a benchmark that a user's command runs. Such a case has no `c`, and is identified by its name.
  std::optional<ForeignMeasure> measure = {};
  bool is_new() const { return !lacking.empty(); }
  bool is_compared() const { return unusable.empty() && !is_new(); }
  struct OfSide {
    // One value for each process.
    std::vector<double> medians = {};  // milliseconds, the number of instructions if these are counted, or the measure
    // The median, over the turns, of log(this side's time / the base's time). If more of the measure is better, the sides are
    // exchanged.
    std::vector<double> log_ratios = {};
    std::vector<double> peak_extra_bytes = {};  // memory above the inputs
    std::string implementation = {};            // the implementation that ran
  };
  std::vector<OfSide> sides = {};  // in the order of the suite's sides; the first is the base
};

// The text in which paths in the sides' copies of the repository are replaced by paths in the repository.
std::string without_copies(std::string text, const std::vector<Side>& sides);

struct SuiteOptions {
  std::string file;                   // a sweep file
  std::vector<std::string> settings;  // key=value; replaces the value in the file
  bool instructions = false;          // count the instructions of the AVX2 kernels on one thread instead of measuring time
  bool quiet = false;                 // print no progress to standard error
  uint64_t seed = 0;                  // seed of the order in which cases and builds run
};

// The cases of a gate and what was measured of them. Derived classes measure the cases.
class GateSuite {
 public:
  GateSuite(SuiteOptions options, std::vector<Side> sides)
      : options_(std::move(options)), sides_(std::move(sides)), random_(options_.seed) {}
  virtual ~GateSuite() = default;
  GateSuite(const GateSuite&) = delete;
  GateSuite& operator=(const GateSuite&) = delete;

  // Checks every case on every side. A case becomes unusable, with the reason, if a side cannot run it, and new if the base's
  // state of a repository does not have it.
  virtual void check() = 0;
  // Measures the cases with these indices once on each side, in random order, and adds what was measured to the cases. A case
  // becomes unusable if it fails on a side.
  virtual void measure(std::vector<size_t> cases) = 0;
  // Adds a measurement to the case with this index only.
  virtual void measure_one(size_t index) = 0;
  // Counts the instructions of each case once on each side.
  virtual void count_instructions() = 0;
  // Whether one measurement is of all cases, so that its time does not grow with their number.
  virtual bool measures_all_at_once() const { return false; }
  // What is measured, in a few words, such as "time".
  virtual std::string what_is_measured() const = 0;
  // What the cases come from, for the comment: "suite" or "command".
  virtual std::string source_name() const = 0;

  // Prints a line of progress to standard error, unless the options say quiet.
  void note(const std::string& text) const;

  const SuiteOptions& options() const { return options_; }
  const std::vector<SuiteCase>& cases() const { return cases_; }
  const std::vector<Side>& sides() const { return sides_; }

 protected:
  SuiteOptions options_;
  std::vector<Side> sides_;
  std::vector<SuiteCase> cases_;
  std::mt19937_64 random_;
};

// The methods and sizes of a sweep file, which workers measure.
class MethodSuite : public GateSuite {
 public:
  // Reads the suite, whose methods must be ones that the second side has. Throws UsageError for a wrong file, a method outside of
  // a side's copy of a repository, or a worker that cannot be started, and WorkerError for a worker that does not answer.
  MethodSuite(SuiteOptions options, std::vector<Side> sides);

  // Plans and verifies every case on every side. A case becomes unusable if a side cannot run it or does not agree with the
  // reference on it, and new if its method does not exist in the base's state of a repository. Cases that no side supports are
  // dropped. Throws UsageError if no case is left, or if the candidate's state of a repository lacks a method.
  void check() override;
  // For each case, runs one process of each side. The processes run at the same time, and take their samples in turns.
  void measure(std::vector<size_t> cases) override;
  void measure_one(size_t index) override;
  // With callgrind.
  void count_instructions() override;
  std::string what_is_measured() const override { return options_.instructions ? "instructions on AVX2 kernels" : "time"; }
  std::string source_name() const override { return "suite"; }

 private:
  void name_cases();
  void check(size_t side, std::vector<bool>& supported);
  bool has_file(size_t side, SuiteCase& suite_case) const;
  bool has_method(size_t side, SuiteCase& suite_case, const Record& plan) const;
  void measure(SuiteCase& suite_case);
};

}  // namespace attnbench
