// Finds the worker in a build folder, or checks out a revision of this project in a folder of its own and builds it.
#include "harness/gate/builds.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/files/installation.h"
#include "harness/files/replace_file.h"
#include "harness/gate/git.h"
#include "harness/process/child_process.h"
#include "harness/records/folder_lock.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr double kNoDeadline = std::numeric_limits<double>::infinity();
// Time for git to release its locks, and for ninja to end its compilers and to delete their unfinished files.
constexpr double kGraceS = 10;

// A revision of a git repository, in a folder where it is checked out and built.
class RevisionBuild {
 public:
  RevisionBuild(std::string revision, fs::path root, std::string commit)
      : revision_(std::move(revision)),
        commit_(std::move(commit)),
        root_(std::move(root)),
        folder_(root_ / "build-gate" / commit_.substr(0, 12)),
        source_(folder_ / "source"),
        build_(folder_ / "build"),
        log_path_(folder_ / "build.log") {}

  // Returns the path of the worker. Builds it first if the revision was not built before.
  std::string worker() {
    const auto worker = build_ / "attnbench-worker";
    if (!is_done("built")) {
      make_folder(folder_.string());
      lock_.open((folder_ / ".lock").string(), O_RDWR | O_CREAT);
      if (flock(lock_, LOCK_EX | LOCK_NB) != 0)
        throw UsageError(fmt::format("{}: another process is building this revision", folder_.string()));
      print_notice(fmt::format("building {} in {}\n", commit_.substr(0, 12), folder_.string()));
      check_out();
      run({"cmake", "-S", source_.string(), "-B", build_.string(), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
           "-DATTNBENCH_TESTS=OFF", "-DATTNBENCH_CUDA=OFF",
           fmt::format("-DATTNBENCH_PYTHON={}", (root_ / ".venv/bin/python").string())});
      run({"cmake", "--build", build_.string(), "--target", "attnbench-worker"});
      if (!fs::exists(worker))
        throw UsageError(fmt::format("the build of '{}' made no {}, see {}", revision_, worker.string(), log_path_.string()));
      set_done("built");
    }
    return worker.string();
  }

 private:
  void check_out() {
    if (is_done("checked-out")) return;
    // An interrupted checkout may lack files, and git keeps its worktree locked. --force overrides that lock if it is given
    // twice.
    fs::remove_all(source_);
    run({"git", "-C", root_.string(), "worktree", "add", "--detach", "--force", "--force", source_.string(), commit_});
    set_done("checked-out");
  }

  // When a step is done, an empty file with its name is written to the folder. The files that the step makes do not show that it
  // is done, because it may have been interrupted while it wrote them.
  bool is_done(const std::string& step) const { return fs::exists(folder_ / step); }
  void set_done(const std::string& step) const { replace_file(folder_.string(), step, ""); }

  void run(std::vector<std::string> words) {
    const auto shown = words[0] + " " + (words[1] == "-C" ? words[3] : words[1]);
    std::ofstream log(log_path_, std::ios::app);
    const auto receive = [&](std::string_view text) { return bool(log << text << std::flush); };
    const auto result = ChildProcess({.words = std::move(words),
                                      .outputs = {{{STDOUT_FILENO, STDERR_FILENO}, receive}},
                                      .grace_s = kGraceS,
                                      .ends_as_group = true})
                            .finish(kNoDeadline);
    if (!log) throw UsageError(fmt::format("cannot write {}", log_path_.string()));
    if (result.end != ChildEnd::exited || result.code != 0)
      throw UsageError(fmt::format("'{}' does not build: {} failed, see {}", revision_, shown, log_path_.string()));
  }

  std::string revision_, commit_;
  fs::path root_, folder_, source_, build_, log_path_;
  FileDescriptor lock_;  // held while the revision is built
};

std::string build_revision(const std::string& revision) {
  std::string root, commit;
  try {
    commit = find_commit(".", revision);
    root = first_line(git_output(".", {"rev-parse", "--show-toplevel"}));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("'{}' is neither a build folder nor a program; {}", revision, error.what()));
  }
  if (commit.empty())
    throw UsageError(
        fmt::format("'{}' is neither a build folder nor a program nor a git revision of the repository {}", revision, root));
  return RevisionBuild(revision, root, commit).worker();
}

}  // namespace

WorkerProgram worker_of(const std::string& build_or_revision) {
  fs::path path = build_or_revision;
  if (fs::is_directory(path)) path /= "attnbench-worker";
  else if (path.filename() == "attnbench") path = internal_program(path.parent_path(), "attnbench-worker");
  else if (!fs::exists(path)) return {build_revision(build_or_revision)};
  if (access(path.c_str(), X_OK) != 0)
    throw UsageError(fmt::format("{}: {}; expected a worker program that can be executed", path.string(), std::strerror(errno)));
  return {fs::absolute(path).string()};
}

}  // namespace attnbench
