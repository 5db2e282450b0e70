// The procedure of a sweep: plan its cases, prepare the folder of its records, and measure the cases that are due.
#pragma once

#include <string>
#include <vector>

#include "harness/process/worker_process.h"
#include "harness/records/result_folder.h"
#include "harness/sweep/prediction.h"
#include "harness/sweep/shard.h"
#include "harness/sweep/sweep_file.h"

namespace attnbench {

// The cases of a sweep, or of one shard of it.
struct SweepPlan {
  SweepFile sweep;
  Shard shard;
  std::vector<Case> cases;
  // For each case, a record that holds the case, its cost, the values published elsewhere and, if it cannot run, why.
  std::vector<Record> planned;
  Json diagnostics;  // of all methods, for ResultFolder::write_schema
};

// Reads the sweep file and lets the worker plan its cases. `shard` is as given to --shard; empty: every case. Throws UsageError
// for a file, an override or a shard that makes no sense, and WorkerError when the worker breaks.
SweepPlan plan_sweep(const WorkerProgram& worker, const std::string& file, const SweepOverrides& overrides,
                     const std::string& shard);

// Sets the predicted time and memory of every planned case, without measuring the machine: the times are lower bounds, except
// of methods that `measured` has records of. Returns the predictor, which tells the two apart.
TimePredictor predict_without_ceilings(SweepPlan& plan, const std::vector<Record>& measured);

// Which cases run when some are recorded already: those without a record, the failed ones too, or all.
enum class Resume { missing, failed, all };

// Is told how far a sweep is.
class SweepObserver {
 public:
  virtual ~SweepObserver() = default;
  // Before the case `number` of those that are due, from 1. `rest_s`: the predicted time of it and all later ones.
  virtual void starting(size_t number, const Record& planned, double rest_s) = 0;
  virtual void finished(size_t number, const Record& record) = 0;
};

class SweepRun {
 public:
  // Opens the folder of records, by default results/SWEEP/MACHINE, and finds out which cases are due. Records of another build,
  // machine or configuration are moved aside if every case is measured again, and otherwise refused with a UsageError.
  SweepRun(WorkerProgram worker, SweepPlan plan, std::string out, Resume resume);

  const ResultFolder& folder() const { return folder_; }
  size_t cases() const { return plan_.cases.size(); }
  size_t due() const { return due_.size(); }
  // Measures the cases that are due and records each as it ends. Returns the number of those that failed. Throws Interrupted;
  // what ended before is recorded then.
  size_t measure(SweepObserver& observer);

 private:
  // Predicted time of the due cases from this one on.
  double remaining_s(size_t first, const TimePredictor& predictor) const;

  WorkerProgram worker_;
  SweepPlan plan_;
  Record environment_;
  ResultFolder folder_;
  Json provenance_;          // environment.json
  std::vector<size_t> due_;  // indices of cases
};

}  // namespace attnbench
