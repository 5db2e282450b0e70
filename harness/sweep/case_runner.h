// Runs cases in workers and makes a complete record of each, however the case ends.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/process/worker_process.h"
#include "harness/schema/record.h"
#include "harness/sweep/case_plans.h"
#include "harness/sweep/prediction.h"
#include "harness/sweep/process_records.h"

namespace attnbench {

// The worker, with a server from which processes are forked if any of these cases, or a baseline, has a Python method. All
// processes of a sweep must begin in the same way, so that their times can be compared: C++ methods beside Python methods are
// forked, too. Cases on a GPU are never forked.
WorkerProgram worker_for(const WorkerProgram& worker, const std::vector<Case>& cases);

// The time now, as the column finished_at holds it.
std::string now_utc();

// A case that is to be measured, and the baseline that takes turns with it.
struct MeasuredCase : PlannedCase {
  std::optional<PlannedCase> baseline = std::nullopt;
};

// What earlier processes say about the next process of a case.
struct ProcessOptions {
  bool is_first = true;                                  // the first process also checks the agreement at a small size
  double best_arithmetic_us = 0;                         // the best time of the arithmetic probe in earlier processes, or 0
  std::string digest = {}, baseline_digest = {};         // of results that earlier processes have compared, or empty
  uint64_t random = 0;                                   // a random number, which chooses who begins
  std::optional<NoBaseline> no_baseline = std::nullopt;  // why the baseline does not run, although the case has one
};

// The options of the next process of a case, after these.
ProcessOptions next_process(const std::vector<Record>& processes);

// Runs one worker process for a planned case that can run, and one for its baseline, if there is one. The two take their samples
// in turns, or run one after the other if they do not fit into the memory together or one has several ranks. Returns the record
// of the case, however its process ends, without the columns of the environment. If the baseline fails, the record says so in
// ratio_reason. Throws UsageError if a worker cannot be started, and Interrupted on SIGINT or SIGTERM.
Record run_process(const WorkerProgram& worker, const MeasuredCase& measured, const ProcessOptions& options);

// Runs a planned case in as many worker processes as it asks for, one after the other, unless the plan says that it cannot run.
// Returns its complete record, which includes the columns of `environment`. If `ceilings` are given, a time that they do not
// allow is marked as implausible. Throws UsageError if the worker cannot be started, and Interrupted on SIGINT or SIGTERM.
Record run_case(const WorkerProgram& worker, const MeasuredCase& measured, const Record& environment,
                const std::optional<Ceilings>& ceilings);

// The case as JSON for a worker of another build. Fields that have their default are left out, because the other build may not
// know them and would refuse the case.
Json portable_request(const Case& c);

// A case and the build whose worker measures it.
struct CaseOfBuild {
  WorkerProgram worker;
  Case c;
  std::vector<std::string> arguments = {};  // of the worker's command
};
// Runs one process for each side, all at the same time. They take their samples in turns, in the order of `sides`. If all cases
// have one thread, they share one processor, which the random number `random` chooses. Returns the records in the order of
// `sides`; they have no columns of the environment.
std::vector<Record> run_in_turns(const std::vector<CaseOfBuild>& sides, uint64_t random);

// Merges one line of a worker's answer into the record. If the line is not a record, the case has failed.
void take_line(Record& record, const Json& line);
// The kind of failure (see record.h) of a case whose worker did not answer as it should.
const char* failure_kind(const WorkerAnswer& answer);

}  // namespace attnbench
