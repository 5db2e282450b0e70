// How a command of the driver can end early.
#pragma once

#include <stdexcept>
#include <string>

namespace attnbench {

// Exit codes: 0 done, 1 some cases failed, 2 usage or unusable input, 128 + signal when interrupted.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Interrupted : std::runtime_error {
  explicit Interrupted(int signal_number) : std::runtime_error("interrupted"), signal(signal_number) {}
  int signal;
};

}  // namespace attnbench
