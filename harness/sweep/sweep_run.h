// Runs a sweep: plans its cases, prepares the folder of its records, and measures the cases that are due.
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
  // One record for each case. It holds the case, its cost, the values published elsewhere and, if the case cannot run, the
  // reason.
  std::vector<Record> planned;
  Json diagnostics;  // those that any method declares, for ResultFolder::write_schema
};

// Reads the sweep file and lets the worker plan its cases. `shard` is the text given to --shard; empty text stands for every
// case. Throws UsageError for a wrong file, override or shard, and WorkerError if the worker breaks.
SweepPlan plan_sweep(const WorkerProgram& worker, const std::string& file, const SweepOverrides& overrides,
                     const std::string& shard);

// Calls predict() on every planned case, without measuring the ceilings of the machine. A predicted time is a lower bound, unless
// `measured` has a record of the method in the same setting; TimePredictor::has_seen of the returned predictor tells which.
TimePredictor predict_without_ceilings(SweepPlan& plan, const std::vector<Record>& measured);

// Which cases are due when the folder holds records already. Records that were imported do not count.
enum class Resume {
  missing,  // the cases without a record
  failed,   // these, and the cases that failed
  all,      // every case
};

// Is told of the progress of a sweep.
class SweepObserver {
 public:
  virtual ~SweepObserver() = default;
  // Called before a case starts. `number` counts the cases that are due from 1. `rest_s` is the predicted time of this case and
  // all later ones, in seconds.
  virtual void starting(size_t number, const Record& planned, double rest_s) = 0;
  // Called after the record of the case was written.
  virtual void finished(size_t number, const Record& record) = 0;
};

class SweepRun {
 public:
  // Opens the folder of records, and finds out which cases are due. If `out` is empty, the folder is results/SWEEP/MACHINE, or
  // for a shard results/SWEEP/MACHINE/shard-I-of-N. Records of another build, machine or configuration are moved aside if every
  // case is measured again; otherwise the constructor throws UsageError.
  SweepRun(WorkerProgram worker, SweepPlan plan, std::string out, Resume resume);

  const ResultFolder& folder() const { return folder_; }
  size_t cases() const { return plan_.cases.size(); }
  size_t due() const { return due_.size(); }
  // Measures the cases that are due and records each as it ends. Returns the number of cases that failed. If it throws
  // Interrupted, the cases that ended before are recorded.
  size_t measure(SweepObserver& observer);

 private:
  // The predicted time, in seconds, of the due cases from `first` on.
  double remaining_s(size_t first, const TimePredictor& predictor) const;

  WorkerProgram worker_;
  SweepPlan plan_;
  Record environment_;
  ResultFolder folder_;
  Json provenance_;          // environment.json
  std::vector<size_t> due_;  // indices of cases
};

}  // namespace attnbench
