// Measures how fast models generate images, and records each process of each case as a line of generations.jsonl.
#pragma once

#include <string>
#include <vector>

#include "harness/experiments/experiment_folder.h"
#include "harness/schema/generation.h"

namespace attnbench {

inline constexpr auto kGenerationsFile = "generations.jsonl";

// Is told what happens while cases are measured.
class GenerationObserver {
 public:
  virtual ~GenerationObserver() = default;
  // The `number`-th of `of` processes begins.
  virtual void starting(size_t number, size_t of, const Generation& generation) = 0;
  virtual void finished(size_t number, size_t of, const Json& record) = 0;
};

// The processes of one case.
struct GenerationSummary {
  Generation generation;
  std::vector<Json> measured;  // the records of the processes that measured it
  Json last;                   // the record of its last process

  // The median of a column over the processes that measured it; NaN if there is none.
  double median(const char* column) const;
  // Whether a process extrapolated the time.
  bool is_extrapolated() const;
};
// In the order in which the cases first appear.
std::vector<GenerationSummary> summaries_of(const std::vector<Json>& records);

class GenerationRun {
 public:
  // `out` is the folder; empty text stands for results/NAME/MACHINE. With `anew`, all cases are measured again. Throws UsageError
  // that says what differs if the folder's records come from another build or machine.
  GenerationRun(const WorkerProgram& worker, WorkerProgram experiments, std::vector<Generation> cases, const std::string& name,
                const std::string& out, bool anew);

  const std::string& folder() const { return folder_.path(); }
  const std::vector<Generation>& cases() const { return cases_; }
  // The records of all cases in the folder, also of those that this run does not measure.
  const std::vector<Json>& records() const { return records_; }
  // The number of processes that are missing.
  size_t due() const;

  // Measures what is missing: in each round one process of every case, in a random order. A case that fails or is skipped is not
  // measured again. Returns the number of cases that failed. Throws Interrupted on SIGINT or SIGTERM.
  size_t measure(GenerationObserver& observer);

 private:
  // The processes of a case so far.
  int64_t processes_of(const Generation& generation) const;
  bool is_given_up(const Generation& generation) const;
  Json run(const Generation& generation, int64_t process) const;

  WorkerProgram experiments_;
  std::vector<Generation> cases_;
  ExperimentFolder folder_;
  std::vector<Json> records_;
  JsonLines file_;  // declared after the list, which its constructor fills
};

}  // namespace attnbench
