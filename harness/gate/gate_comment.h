// The gate's report as a comment on a pull request.
#pragma once

#include <string>

#include "harness/gate/gate_report.h"
#include "harness/gate/gate_run.h"
#include "harness/gate/gate_suite.h"

namespace attnbench {

// Returns Markdown. The first line is an HTML comment that nobody sees; it is the same for every gate of the suite, so that a
// later gate can find the comment of an earlier one and replace it. `suite_name` and `base` are what the user named.
std::string comment_of(const GateReport& report, const GateSuite& suite, const GateOptions& options,
                       const std::string& suite_name, const std::string& base);

// The comment of a gate of the suite that ended with this error.
std::string comment_of_error(const std::string& message, const std::string& suite_name);

}  // namespace attnbench
