// The gate's report: a verdict for each case and a result for all of them, with waivers, as text, Markdown and JSON.
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
// Throws UsageError, which says file and line, for anything else, for a waiver without a reason, for a case that is not in
// `names`, and for a second waiver of a case.
Waivers read_waivers(const std::string& path, const std::vector<std::string>& names);

struct GateOptions {
  GatePlan plan;
  double memory_shift = 0.01;        // relative growth of memory up to which it is no regression
  double instruction_shift = 0.005;  // relative growth of the number of instructions up to which it is no regression
  std::string waivers;               // path of a file for read_waivers; empty if there is none
  double time_limit_s = 50;          // a quick gate begins no pair that would probably end later
};

enum class GateResult { pass, regression, inconclusive, unusable };

struct GateReport {
  GateResult result = GateResult::pass;
  struct Line {
    std::string name;           // in full
    std::string label;          // the part of the name that tells it from the other cases
    std::string verdict;        // a few words, such as "regression" or "pass, regression in memory"
    std::string reason;         // why a case is unusable or new; empty for others
    bool is_new = false;        // the base has no such case, so there is nothing to compare
    bool is_unusable = false;   // the sides cannot be compared on the case
    bool is_undecided = false;  // a quick gate has too few pairs for a verdict
    std::string waived;         // the reason from the waiver of a case that did not pass; empty if there is none
    bool failed = false;        // whether it is a regression that no waiver accepts
    GateJudgement judgement;    // the judgement of the times or of the numbers of instructions
    size_t processes = 0;       // of each side
    bool memory_regression = false;
  };
  std::vector<Line> lines;
  std::string shared;      // what all cases have in common, such as "N=1024, causal"
  double full_gate_s = 0;  // for a quick gate: how long a full gate would take at most; NaN if nothing was measured
  double pair_s = 0;       // for a full gate: how long a pair of processes of one case takes; NaN if nothing was measured
  bool pair_is_of_all_cases = false;  // whether such a pair measures all cases at once
};
// Makes the report from the suite's cases and one judgement for each. New cases change nothing of the result. A case is a
// regression in memory if every process of the candidate has a higher peak than every process of the base, by more than the share
// `memory_shift`. A quick gate calls an inconclusive case "not decided".
GateReport report_of(const std::vector<SuiteCase>& suite, const std::vector<GateJudgement>& judgements, const Waivers& waivers,
                     const GateOptions& options);

// "pass", "regression", and so on.
const char* result_name(GateResult result);
Json json_of(const GateReport& report, const GateSuite& suite, const GateOptions& options);
// The tone in which a verdict is shown.
Tone tone_of(Verdict verdict);
// How text is shown.
struct TextStyle {
  TableFormat format = TableFormat::text;
  bool colours = false;
  size_t max_width = 0;  // of text, in columns; 0 stands for any
};
// A table with a row for each of these lines of the report. Values of base and candidate are those whose ratio is the estimated
// change (values_of_estimate()). With reasons, the cell of the verdict also says why a case is unusable, new or waived, and how
// much memory a regression in memory needs.
TextTable table_of(const GateReport& report, const GateSuite& suite, const std::vector<size_t>& lines, bool with_reasons);
// What all cases have in common, a table with a row for each case, as table_of() makes it, and sentences that explain it: why
// cases are unusable or new, why they are waived, what a quick gate left undecided, and how a regression can be accepted.
std::string findings_of(const GateReport& report, const GateSuite& suite, const GateOptions& options, const TextStyle& style);
// What a regression, a pass and p mean; empty if instructions were counted.
std::string explanation_of(const GateSuite& suite, const GateOptions& options);
// The findings, the explanation, and a line with the result.
std::string text_of(const GateReport& report, const GateSuite& suite, const GateOptions& options, const TextStyle& style);

}  // namespace attnbench
