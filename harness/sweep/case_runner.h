// Runs cases in workers and makes a whole record of each, however it ends.
#pragma once

#include <optional>
#include <vector>

#include "harness/process/worker_process.h"
#include "harness/schema/record.h"
#include "harness/sweep/prediction.h"

namespace attnbench {

// The worker's build and machine, as columns of a record. Throws WorkerError.
Record ask_environment(const WorkerProgram& worker);

// Asks the worker for the plan of each case. Returns records that hold the case, its cost, and the reason if it cannot run.
// Throws UsageError when a case makes no sense, such as an unknown option of a method, and WorkerError when a method breaks.
std::vector<Record> plan_cases(const WorkerProgram& worker, const std::vector<Case>& cases);

// Runs a planned case in as many worker processes as it asks for, one after the other, and returns its whole record. With
// `ceilings` a time that they do not allow is marked as implausible. Throws UsageError when the worker cannot be started, and
// Interrupted.
Record run_case(const WorkerProgram& worker, const Case& c, const Record& planned, const Record& environment,
                const std::optional<Ceilings>& ceilings);

// The case as JSON for a worker of another build: without the fields that have their default, because that build may not know
// them and would refuse the case.
Json portable_request(const Case& c);

// A case and the build whose worker measures it.
struct CaseOfBuild {
  WorkerProgram worker;
  Case c;
};
// Runs one process for each, all at the same time, which take their samples in turns in this order. If all cases have one thread,
// they share a processor, which `random` chooses. Returns the records in order; they have no columns of the environment.
std::vector<Record> run_in_turns(const std::vector<CaseOfBuild>& sides, uint64_t random);

// Merges one line of a worker's answer into the record, or records that the line is not a record.
void take_line(Record& record, const Json& line);
// The kind of failure (see record.h) of a worker that did not answer as it should.
const char* failure_kind(const WorkerAnswer& answer);

}  // namespace attnbench
