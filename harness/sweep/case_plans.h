// Asks workers, before anything is measured, what machine they run on, and what each case would take.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/process/worker_process.h"
#include "harness/schema/record.h"

namespace attnbench {

// Asks the worker for its build and machine, and returns them as columns of a record. Throws WorkerError if it does not answer.
Record ask_environment(const WorkerProgram& worker);

// Returns the place ("file:line:column") of the case's value of this field, for which the worker refused it; empty if unknown.
using OriginOf = std::function<std::string(const Case& c, const std::string& field)>;

// Asks workers for the plan of each case. Returns one record for each case, which holds the case, its cost and, if the case
// cannot run, the reason. Throws UsageError with the origin and the reason if a case makes no sense, for example because a method
// does not know an option, and WorkerError if a method breaks.
std::vector<Record> plan_cases(const WorkerProgram& worker, const std::vector<Case>& cases, const OriginOf& origin_of = {});

// A case, and its record with the worker's plan for it.
struct PlannedCase {
  Case c;
  Record planned;
};

// Plans the baselines of these cases. Returns a baseline for each case, or nothing where a case has none. Throws as plan_cases().
std::vector<std::optional<PlannedCase>> plan_baselines(const WorkerProgram& worker, const std::vector<Case>& cases,
                                                       const OriginOf& origin_of = {});

}  // namespace attnbench
