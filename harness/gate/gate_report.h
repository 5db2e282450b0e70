// The gate's verdicts as they are told: per case and over all, with waivers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/gate/gate.h"
#include "harness/gate/gate_suite.h"
#include "harness/text/text_table.h"

namespace attnbench {

// Names of cases that may fail, with the reason.
using Waivers = std::map<std::string, std::string>;
// TOML: [[waive]] case = "linear forward N=4096" reason = "…". Throws UsageError with file and line for anything else, for a
// waiver without a reason, and for one of no case in `names`.
Waivers read_waivers(const std::string& path, const std::vector<std::string>& names);

enum class GateResult { pass, regression, inconclusive, unusable };

struct GateReport {
  GateResult result = GateResult::pass;
  struct Line {
    std::string name, verdict, waived;  // the waiver's reason
    Judgement judgement;
    size_t processes = 0;
    bool memory_regression = false;
  };
  std::vector<Line> lines;
};
// A case's memory is a regression when each candidate's peak is more than `memory_shift` above every base's.
GateReport report_of(const std::vector<SuiteCase>& suite, const std::vector<Judgement>& judgements, const Waivers& waivers,
                     double memory_shift);

Json json_of(const GateReport& report, const GateSuite& suite, const GatePlan& plan, bool instructions);
// A table, a line a case, and the result.
std::string text_of(const GateReport& report, const GateSuite& suite, bool instructions, TableFormat format);

}  // namespace attnbench
