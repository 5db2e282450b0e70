// Reads a regular file up to a limit, and refuses everything else.
#include "harness/files/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "harness/files/file_descriptor.h"
#include "harness/text/errors.h"

namespace attnbench {

std::string read_text_file(const std::string& path, size_t max_bytes) {
  // Without O_NONBLOCK, opening a named pipe would wait until another program writes to it.
  FileDescriptor file;
  file.open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, FileDescriptor::Links::followed);
  struct stat status {};
  if (fstat(file, &status) != 0) fail_on(path, "read");
  if (S_ISDIR(status.st_mode)) throw UsageError(fmt::format("{}: is a folder, expected a file", path));
  if (!S_ISREG(status.st_mode)) throw UsageError(fmt::format("{}: not a regular file", path));
  const auto check_size = [&](size_t bytes) {
    if (bytes > max_bytes) throw UsageError(fmt::format("{}: longer than {} bytes", path, max_bytes));
  };
  check_size(size_t(status.st_size));
  std::string text;
  text.reserve(size_t(status.st_size) + 1);
  std::array<char, size_t{1} << 16> piece;
  // The file is read up to its end rather than to its size, since it may grow, and files in /proc have size 0.
  for (;;) {
    const auto count = read(file, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_on(path, "read");
    if (count == 0) return text;
    text.append(piece.data(), size_t(count));
    check_size(text.size());
  }
}

}  // namespace attnbench
