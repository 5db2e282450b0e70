// A folder for the files of one gate, outside of the repository that it compares.
#pragma once

#include <filesystem>

#include "harness/files/file_descriptor.h"

namespace attnbench {

// The folder attnbench-gate-UID/run-XXXXXX below TMPDIR, or below /tmp. The destructor removes it with its contents. A gate that
// was killed leaves its folder behind; the next ScratchFolder of the same user removes it, or leaves it with a notice if that
// fails.
class ScratchFolder {
 public:
  // Throws UsageError if the folder cannot be made, if another user could write to it, or if it would lie in `repository`, which
  // is the canonical path of a folder.
  explicit ScratchFolder(const std::filesystem::path& repository);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;  // held as long as the folder is in use
};

}  // namespace attnbench
