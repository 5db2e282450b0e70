// Remembers the signal in a handler, for throw_if_interrupted().
#include "harness/process/interrupts.h"

#include <csignal>

#include "harness/text/errors.h"

namespace attnbench {
namespace {

volatile std::sig_atomic_t caught_signal = 0;

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { caught_signal = signal; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void throw_if_interrupted() {
  if (caught_signal != 0) throw Interrupted(caught_signal);
}

}  // namespace attnbench
