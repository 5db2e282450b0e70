// An open file.
#pragma once

#include <string>

namespace attnbench {

// Throws UsageError "PATH: cannot DOING: REASON", where the reason is the text of errno.
[[noreturn]] void fail_on(const std::string& path, const char* doing);

// Owns an open file, and closes it when it is destroyed.
class FileDescriptor {
 public:
  // Whether a path whose last part is a symbolic link, which could lead out of a folder, is an error.
  enum class Links { refused, followed };

  FileDescriptor() = default;
  ~FileDescriptor();
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  // Opens the file, and closes the one that was open before. Throws UsageError that names the path if this fails.
  void open(const std::string& path, int flags, Links links = Links::refused);
  operator int() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

}  // namespace attnbench
