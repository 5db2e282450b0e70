// Makes folders for gates in the folder for temporary files, and removes those of gates that no longer run.
#include "harness/gate/scratch_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "harness/process/interrupts.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr auto kLock = ".lock";

// The canonical path of the folder for temporary files. Throws UsageError if it lies in `repository`.
fs::path temporary_folder(const fs::path& repository) {
  const char* const given = std::getenv("TMPDIR");
  const fs::path folder = fs::canonical(given && *given ? given : "/tmp");
  const auto differs = std::mismatch(repository.begin(), repository.end(), folder.begin(), folder.end()).first;
  if (differs == repository.end())
    throw UsageError(
        fmt::format("the folder for temporary files, {}, lies in the repository {}, which the gate must not change; "
                    "set TMPDIR to a folder outside of it",
                    folder.string(), repository.string()));
  return folder;
}

// The folder that holds those of all gates of this user.
fs::path folder_of_user(const fs::path& temporary) {
  const auto folder = temporary / fmt::format("attnbench-gate-{}", geteuid());
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) fail_on(folder.string(), "make the folder");
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) fail_on(folder.string(), "use");
  if (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    throw UsageError(
        fmt::format("{}: expected a folder of this user to which nobody else can write; remove it, or set TMPDIR "
                    "to another folder",
                    folder.string()));
  return folder;
}

// Removes the folder with its contents, including folders for which their owner has no write permission.
void remove_folder(const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (!error) return;
  fs::permissions(folder, fs::perms::owner_all, fs::perm_options::add, error);
  for (fs::recursive_directory_iterator entry(folder, error), end; entry != end; entry.increment(error))
    if (entry->is_directory(error) && !entry->is_symlink(error))
      fs::permissions(entry->path(), fs::perms::owner_all, fs::perm_options::add, error);
  fs::remove_all(folder, error);
  if (error) print_notice(fmt::format("{} could not be removed: {}\n", folder.string(), error.message()));
}

// Removes the folders whose gates no longer run, and therefore hold no lock. One that cannot be locked is left and named.
void remove_abandoned(const fs::path& folder_of_all) {
  for (const auto& entry : fs::directory_iterator(folder_of_all)) {
    if (!entry.is_directory() || entry.is_symlink()) continue;
    FileDescriptor lock;
    try {
      lock.open((entry.path() / kLock).string(), O_RDWR | O_CREAT);
    } catch (const UsageError& error) {
      print_notice(fmt::format("{}; the folder of an earlier gate is left there\n", error.what()));
      continue;
    }
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) remove_folder(entry.path());
  }
}

}  // namespace

ScratchFolder::ScratchFolder(const fs::path& repository) {
  const auto all = folder_of_user(temporary_folder(repository));
  // This lock is held so that no other gate takes this gate's folder for abandoned before it is locked.
  FileDescriptor making;
  making.open((all / kLock).string(), O_RDWR | O_CREAT);
  while (flock(making, LOCK_EX) != 0) {
    if (errno != EINTR) fail_on((all / kLock).string(), "lock");
    throw_if_interrupted();
  }
  remove_abandoned(all);
  auto name = (all / "run-XXXXXX").string();
  if (!mkdtemp(name.data())) fail_on(name, "make the folder");
  path_ = name;
  lock_.open((path_ / kLock).string(), O_RDWR | O_CREAT);
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) fail_on(path_.string(), "lock");
}

ScratchFolder::~ScratchFolder() { remove_folder(path_); }

}  // namespace attnbench
