// The record of one process that measured a case, and the record of a case that is made from those of its processes: medians and
// intervals of the times, and of their ratios to a baseline.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/schema/record.h"
#include "harness/sweep/prediction.h"

namespace attnbench {

// Adds the columns that are computed from the samples of one process.
void add_statistics(Record& record);

// Why a case runs without its baseline, as the columns ratio_failure_kind and ratio_reason say it.
struct NoBaseline {
  std::string kind;  // of namespace kind; empty if no process failed
  std::string reason;

  // Whether the baseline may run in a later process: a predicted time may be better then, and other failures would repeat.
  bool may_pass() const { return kind == attnbench::kind::predicted_timeout; }
};

// Why the case ran without its baseline in this process; nothing if it has none or ran with it.
std::optional<NoBaseline> why_no_baseline(const Record& process);

// The failure of a baseline that was not measured.
NoBaseline failure_of(const Record& baseline);
// Says in the record of a process that it has no ratio, and why.
void set_no_baseline(Record& record, const NoBaseline& why);

// How a baseline was measured beside a case, as the column ratio_pairing says it.
inline constexpr std::string_view kInTurns = "turns", kInProcesses = "processes";
// Adds the columns of the ratio, from the records of one process of the case and one of its baseline.
void add_ratio(Record& record, const Record& baseline, std::string_view pairing);

// Makes the record of a case from the records of its processes, of which there is at least one. If the last process did not
// measure the case, its failure is the outcome. Processes with too few undisturbed samples count only if without them fewer than
// `wanted` would remain. Columns that are not about times come from the first process. If `ceilings` are given, a time that they
// do not allow is marked as implausible.
Record record_of_processes(const std::vector<Record>& processes, size_t wanted, const std::optional<Ceilings>& ceilings);

}  // namespace attnbench
