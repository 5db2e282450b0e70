// Keeps two processes from writing to the same folder, and makes folders.
#pragma once

#include <string>

#include "harness/files/file_descriptor.h"

namespace attnbench {

// Makes the folder and the folders above it where they are missing. Throws UsageError that names the folder if this fails.
void make_folder(const std::string& path);

// Keeps other processes from writing to a folder as long as it exists.
class FolderLock {
 public:
  // Makes the folder where it is missing. Throws UsageError that names the process that has locked it.
  explicit FolderLock(const std::string& folder);

 private:
  FileDescriptor file_;
};

}  // namespace attnbench
