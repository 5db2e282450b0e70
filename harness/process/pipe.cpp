// Makes pipes whose descriptors lie above those that child processes get.
#include "harness/process/pipe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "harness/text/errors.h"

namespace attnbench {

Pipe::Pipe() {
  constexpr int kMinDescriptor = 4;
  std::array<int, 2> made;
  if (pipe2(made.data(), O_CLOEXEC) != 0) throw UsageError(fmt::format("cannot create a pipe: {}", std::strerror(errno)));
  int error = 0;
  for (size_t i = 0; i < made.size(); ++i) {
    ends_[i] = fcntl(made[i], F_DUPFD_CLOEXEC, kMinDescriptor);
    if (ends_[i] < 0) error = errno;
    close(made[i]);
  }
  if (error == 0) return;
  close_read();
  close_write();
  throw UsageError(fmt::format("cannot create a pipe: {}", std::strerror(error)));
}

Pipe::~Pipe() {
  close_read();
  close_write();
}

Pipe::Pipe(Pipe&& other) noexcept : ends_(std::exchange(other.ends_, {-1, -1})) {}

void Pipe::close_end(size_t i) {
  if (ends_[i] >= 0) close(ends_[i]);
  ends_[i] = -1;
}

}  // namespace attnbench
