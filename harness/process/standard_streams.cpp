#include "harness/process/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

namespace attnbench {

void reserve_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() returns the smallest number that is free, which is this one. The descriptor is read-only, so that writing fails.
    open("/dev/null", O_RDONLY);
  }
}

}  // namespace attnbench
