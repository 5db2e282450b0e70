// The gate's report as a comment on a pull request.
#pragma once

#include <string>

#include "harness/gate/gate_report.h"
#include "harness/gate/gate_run.h"
#include "harness/gate/gate_suite.h"

namespace attnbench {

// Returns Markdown. The first line is an invisible HTML comment, which is the same for every gate of the suite, so that a later
// gate can find the comment of an earlier one and replace it. The comment has at most 25 lines and 65,536 characters: the table
// has the ten most important cases, regressions first, and a sentence counts the others. It says what changed and by how much,
// with the interval, on what machine, how sure this is, and how long it would take to decide what was left undecided.
// `suite_name` and `base` are what the user named.
std::string comment_of(const GateReport& report, const GateSuite& suite, const GateOptions& options,
                       const std::string& suite_name, const std::string& base);

// The comment of a gate of the suite that ended with this error.
std::string comment_of_error(const std::string& message, const std::string& suite_name);

}  // namespace attnbench
