// The gate's report: a verdict for each case and a result for all of them, with waivers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/gate/gate.h"
#include "harness/gate/gate_suite.h"
#include "harness/text/text_table.h"

namespace attnbench {

// Names of the cases that are allowed to fail, each with the reason.
using Waivers = std::map<std::string, std::string>;
// Reads a TOML file of tables such as the following; an empty `path` stands for no waivers.
//   [[waive]]
//   case = "linear forward N=4096"
//   reason = "checks its inputs since 0.2"
// Throws UsageError, which says file and line, for anything else, for a waiver without a reason, and for a case that is not in
// `names`.
Waivers read_waivers(const std::string& path, const std::vector<std::string>& names);

enum class GateResult { pass, regression, inconclusive, unusable };

struct GateReport {
  GateResult result = GateResult::pass;
  struct Line {
    std::string name, verdict;
    bool is_new = false;      // the base has no such case, so there is nothing to compare
    std::string waived;       // the reason from the waiver of a case that did not pass; empty if there is none
    GateJudgement judgement;  // of the times or the numbers of instructions
    size_t processes = 0;     // of each side
    bool memory_regression = false;
  };
  std::vector<Line> lines;
};
// Makes the report from the suite's cases and one judgement for each. New cases change nothing of the result. A case is a
// regression in memory if every process of the candidate has a higher peak than every process of the base, by more than the share
// `memory_shift`.
GateReport report_of(const std::vector<SuiteCase>& suite, const std::vector<GateJudgement>& judgements, const Waivers& waivers,
                     double memory_shift);

// "pass", "regression", and so on.
const char* result_name(GateResult result);
Json json_of(const GateReport& report, const GateSuite& suite, const GatePlan& plan);
// The tone in which a verdict is shown.
Tone tone_of(Verdict verdict);
// A table with a row for each case, as TextTable::render() makes it, and a line with the result. The values of base and candidate
// are those whose ratio is the estimated change (values_of_estimate()).
std::string text_of(const GateReport& report, const GateSuite& suite, TableFormat format, bool colours = false,
                    size_t max_width = 0);

}  // namespace attnbench
