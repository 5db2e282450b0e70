// Opens /dev/null for closed descriptors, and ends this program as SIGPIPE would.
#include "harness/process/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <initializer_list>

namespace attnbench {

void reserve_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() returns the smallest number that is free, which is this one. The descriptor is read-only, so that writing fails.
    open("/dev/null", O_RDONLY);
  }
}

bool stdout_has_no_reader() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return poll(&output, 1, 0) > 0 && (output.revents & POLLERR) != 0;
}

void end_without_reader() {
  std::signal(SIGPIPE, SIG_DFL);
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  sigprocmask(SIG_UNBLOCK, &broken_pipe, nullptr);
  raise(SIGPIPE);
  _exit(128 + SIGPIPE);
}

}  // namespace attnbench
