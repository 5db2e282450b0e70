// Opens files so that they are closed on exec, and makes the messages about files that cannot be used.
#include "harness/files/file_descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "harness/text/errors.h"

namespace attnbench {

void fail_on(const std::string& path, const char* doing) {
  throw UsageError(fmt::format("{}: cannot {}: {}", path, doing, std::strerror(errno)));
}

FileDescriptor::~FileDescriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}

void FileDescriptor::open(const std::string& path, int flags, Links links) {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC | (links == Links::refused ? O_NOFOLLOW : 0), 0666);
  if (descriptor_ < 0) fail_on(path, "open");
}

}  // namespace attnbench
