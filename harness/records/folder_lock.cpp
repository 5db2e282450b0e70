// Locks a folder with a file `.lock`, which holds the number of the process that has locked it.
#include "harness/records/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "harness/files/replace_file.h"
#include "harness/text/errors.h"

namespace attnbench {

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw UsageError(fmt::format("{}: cannot make the folder: {}", path, error.message()));
}

FolderLock::FolderLock(const std::string& folder) {
  make_folder(folder);
  const auto path = (std::filesystem::path(folder) / ".lock").string();
  file_.open(path, O_RDWR | O_CREAT);
  if (flock(file_, LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 32> holder{};
    const auto count = read(file_, holder.data(), holder.size() - 1);
    throw UsageError(fmt::format("{}: in use by process {}", folder, count > 0 ? holder.data() : "unknown"));
  }
  if (ftruncate(file_, 0) != 0) fail_on(path, "write");
  write_all(file_, std::to_string(getpid()), path);
}

}  // namespace attnbench
