// The ways in which a command of the driver ends early; harness/cli/exit_codes.h has the exit codes.
#pragma once

#include <stdexcept>
#include <string>

namespace attnbench {

// The command line, an input file or the environment is wrong. The message names what is wrong, where, and what was expected.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A worker crashed, hung, or answered what cannot be read: one of its methods or the worker itself is broken. The message says
// how, and on which method if that is known.
struct WorkerError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// SIGINT or SIGTERM arrived.
struct Interrupted : std::runtime_error {
  explicit Interrupted(int signal_number) : std::runtime_error("interrupted"), signal(signal_number) {}
  int signal;
};

}  // namespace attnbench
