// The exceptions that end a command of the driver; harness/cli/exit_codes.h has the exit codes.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

namespace attnbench {

// The command line, an input file or the environment is wrong. The message names what is wrong, where, and what was expected.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The folder of results holds some of another build, machine or configuration, which what was asked for cannot continue.
struct StaleFolderError : UsageError {
  using UsageError::UsageError;
};

// A worker crashed, hung, or gave an answer that cannot be read, because one of its methods or the worker itself is broken. The
// message says what happened and, if known, for which method.
struct WorkerError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The driver received SIGINT or SIGTERM.
struct Interrupted : std::runtime_error {
  explicit Interrupted(int signal_number) : std::runtime_error("interrupted"), signal(signal_number) {}
  int signal;  // its number
};

// The message of any exception as a user should see it. Those of libraries are put into plain words: a JSON exception without its
// identifier, and a file system error as "path: reason".
std::string error_text(const std::exception& error);

}  // namespace attnbench
