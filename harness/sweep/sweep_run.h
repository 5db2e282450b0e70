// Runs a sweep: plans its cases, prepares the folder of its records, and measures the cases that are due.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "harness/process/worker_process.h"
#include "harness/records/result_folder.h"
#include "harness/sweep/case_plans.h"
#include "harness/sweep/prediction.h"
#include "harness/sweep/process_records.h"
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
  std::vector<std::optional<PlannedCase>> baselines;  // of each case, if it has one
  Json diagnostics;                                   // those that any method declares, for ResultFolder::write_schema
  // The worker that planned the cases and measures the first round (worker_for of case_runner.h).
  WorkerProgram worker = {};
};

// Reads the sweep file and lets the worker plan its cases. `shard` is the text given to --shard; empty text stands for every
// case. Throws UsageError for a wrong file, override or shard, and WorkerError if the worker breaks.
SweepPlan plan_sweep(const WorkerProgram& worker, const std::string& file, const SweepOverrides& overrides,
                     const std::string& shard);

// Calls predict() on every planned case, without measuring the ceilings of the machine. A predicted time rests on typical rates,
// unless `measured` has a record of the method in the same setting; TimePredictor::has_seen of the returned predictor tells
// which.
TimePredictor predict_without_ceilings(SweepPlan& plan, const std::vector<Record>& measured);

// Which cases are due when the folder holds records already. Records that were imported do not count.
enum class Resume {
  missing,  // the cases without a record, and those with too few processes
  stale,    // every case if the records are of another build, machine or configuration, and otherwise as missing
  failed,   // as missing, and the cases that failed
  all,      // every case
};

struct SweepRunOptions {
  // Folder of the records. If empty, results/SWEEP/MACHINE, or for a shard results/SWEEP/MACHINE/shard-I-of-N.
  std::string out = {};
  Resume resume = Resume::missing;
  bool across_boots = false;  // continue cases whose first processes ran on another host or before a reboot
  uint64_t order_seed = 0;    // seed of the order of the cases in each round
  std::string command = {};   // what the user types to measure the same cases again; environment.json holds it
};

// Is told of the progress of a sweep.
class SweepObserver {
 public:
  virtual ~SweepObserver() = default;
  // The place of a process among those that are due, from 1. There can be more of them later than before, because cases that were
  // disturbed are measured again.
  struct Place {
    size_t number = 0, of = 0;
    size_t added = 0;  // how many of these processes were not due at first, but are to replace disturbed ones
  };
  // Called before a process starts. `rest_s` is the predicted time of this process and all later ones, in seconds.
  virtual void starting(const Place& place, const Record& planned, double rest_s) = 0;
  // Called after the record of the process was written, or that of a case that is skipped.
  virtual void finished(const Place& place, const Record& record) = 0;
};

// Measures the cases of a sweep in rounds. Each round visits every case that is due once, in a random order, and runs it in a
// fresh process, so that a slow phase of the machine spreads over all cases and does not look like a property of some. There are
// as many rounds as the cases have `processes`. Cases whose processes were disturbed are measured again in further rounds, at
// most one for every four of `processes`.
class SweepRun {
 public:
  // Opens the folder of records, and finds out what is due. Records of another build, machine or configuration are moved aside if
  // every case is measured again; otherwise the constructor throws UsageError.
  SweepRun(WorkerProgram worker, SweepPlan plan, const SweepRunOptions& options);

  const ResultFolder& folder() const { return folder_; }
  size_t cases() const { return plan_.cases.size(); }
  // The number of cases that are due, and of the processes that they need.
  size_t due_cases() const;
  size_t due() const;
  // Measures what is due, and records each process as it ends and the case with it. Returns the number of cases that failed. If
  // it throws Interrupted, what ended before is recorded.
  size_t measure(SweepObserver& observer);

 private:
  // What is known of one case of the plan.
  struct State {
    std::vector<Record> processes;  // those that ended so far
    bool is_due = false;            // whether more processes are needed
    int64_t visits = 0;             // rounds that did not run it, because it was predicted to exceed its deadline
    std::optional<NoBaseline> no_baseline = std::nullopt;  // why its baseline failed in an earlier process
  };

  size_t open_processes(size_t i) const;
  size_t missing_processes(size_t i) const;
  size_t replacing_processes() const;
  double best_arithmetic_us() const;
  void check_boots() const;
  void restore_records();
  void record_command(const std::string& command);
  void measure_ceilings();
  SweepObserver::Place next_place();
  void run_round(const std::vector<size_t>& order, int64_t round, TimePredictor& predictor, SweepObserver& observer);
  Record run_next_process(size_t i, const Record& planned, const TimePredictor& predictor);
  void record(size_t i, Record record);
  double remaining_s(const TimePredictor& predictor) const;
  void finish();

  WorkerProgram worker_;
  WorkerProgram worker_of_round_;
  SweepPlan plan_;
  Record environment_;
  ResultFolder folder_;
  Json provenance_;  // environment.json
  std::optional<Ceilings> ceilings_;
  std::mt19937_64 random_;
  uint64_t order_seed_;
  std::vector<State> states_;      // in the order of the plan's cases
  size_t replacing_at_first_ = 0;  // the value of replacing_processes() when measuring began
  size_t started_ = 0;             // the number of processes that were started, or cases that were skipped
};

}  // namespace attnbench
