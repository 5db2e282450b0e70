// Runs a program to its end and keeps what it prints.
#pragma once

#include <limits>
#include <string>

#include "harness/process/child_process.h"

namespace attnbench {

struct CapturedOutput {
  ChildResult result;
  std::string output;  // what it wrote to standard output
  std::string errors;  // what it wrote to standard error

  bool succeeded() const { return result.end == ChildEnd::exited && result.code == 0; }
  // Such as "ended with exit code 1; it said: no such file", for a message about a program that did not succeed. Only the end of
  // a long text is quoted.
  std::string failure() const;
};

// Runs the command, whose `outputs` are ignored, however long it takes or, with a deadline, for at most so many seconds. A
// program that writes more than 256 MiB is ended. Throws UsageError if it cannot be started, and Interrupted on SIGINT or
// SIGTERM.
CapturedOutput run_captured(ChildCommand command, double deadline_s = std::numeric_limits<double>::infinity());

}  // namespace attnbench
