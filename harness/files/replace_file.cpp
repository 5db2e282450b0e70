// Writes a new file beside the old one, syncs it to the disk, and renames it.
#include "harness/files/replace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "harness/files/file_descriptor.h"

namespace attnbench {

void write_all(int file, const std::string& text, const std::string& path) {
  for (size_t done = 0; done < text.size();) {
    const auto count = write(file, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_on(path, "write");
    done += size_t(count);
  }
}

void replace_file(const std::string& folder, const std::string& name, const std::string& text) {
  const auto path = (std::filesystem::path(folder) / name).string(), temporary = path + ".new";
  try {
    FileDescriptor file;
    unlink(temporary.c_str());  // A killed run may have left such a file.
    file.open(temporary, O_WRONLY | O_CREAT | O_EXCL);
    write_all(file, text, path);
    // After a power cut there must be the old contents or the new ones, so the new ones are on disk before the name is theirs.
    if (fsync(file) != 0 && errno != EINVAL) fail_on(path, "write");
  } catch (...) {
    unlink(temporary.c_str());
    throw;
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) fail_on(path, "replace");
  // The new name is on disk once the folder is. Some file systems cannot sync folders; then there is nothing more to do.
  FileDescriptor containing;
  containing.open(folder, O_RDONLY | O_DIRECTORY, FileDescriptor::Links::followed);
  fsync(containing);
}

void replace_file(const std::string& path, const std::string& text) {
  const auto whole = std::filesystem::absolute(path);
  replace_file(whole.parent_path().string(), whole.filename().string(), text);
}

}  // namespace attnbench
