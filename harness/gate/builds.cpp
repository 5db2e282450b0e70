#include "harness/gate/builds.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "harness/text/errors.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

// Runs a program to its end, its output at the end of `output`. Its exit status, or -1.
int run(std::vector<std::string> words, const std::string& output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw UsageError(fmt::format("cannot start {}: {}", words[0], std::strerror(error)));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// What git answers, a line; empty when it refuses.
std::string git(std::vector<std::string> words) {
  words.insert(words.begin(), "git");
  char path[] = "/tmp/attnbench-git-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) throw UsageError(fmt::format("cannot make {}: {}", path, std::strerror(errno)));
  const int status = run(std::move(words), path);
  std::array<char, 4096> buffer{};
  const auto count = pread(file, buffer.data(), buffer.size(), 0);
  close(file);
  unlink(path);
  std::string text(buffer.data(), size_t(std::max<ssize_t>(count, 0)));
  if (const auto end = text.find('\n'); end != std::string::npos) text.resize(end);
  return status == 0 ? text : "";
}

std::string build_revision(const std::string& revision) {
  const auto root = git({"rev-parse", "--show-toplevel"});
  const auto commit = git({"rev-parse", "--verify", "--quiet", revision + "^{commit}"});
  if (root.empty() || commit.empty())
    throw UsageError(fmt::format("'{}' is no build folder, no program and no git revision of the current repository", revision));
  const auto folder = fs::path(root) / "build-gate" / commit.substr(0, 12);
  const auto source = folder / "source", build = folder / "build", worker = build / "attnbench-worker";
  if (fs::exists(worker)) return worker.string();
  fs::create_directories(folder);
  const auto log = (folder / "build.log").string();
  fmt::print(stderr, "building {} in {}\n", commit.substr(0, 12), folder.string());
  const auto step = [&](std::vector<std::string> words) {
    const auto shown = words[0] + " " + words[1];
    if (run(std::move(words), log) != 0)
      throw UsageError(fmt::format("'{}' does not build: {} failed, see {}", revision, shown, log));
  };
  if (!fs::exists(source / "CMakeLists.txt")) {
    git({"-C", root, "worktree", "prune"});
    step({"git", "-C", root, "worktree", "add", "--detach", "--force", source.string(), commit});
  }
  step({"cmake", "-S", source.string(), "-B", build.string(), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
        "-DATTNBENCH_TESTS=OFF", "-DATTNBENCH_CUDA=OFF", fmt::format("-DATTNBENCH_PYTHON={}/.venv/bin/python", root)});
  // Under a name that is not taken for finished before it is.
  step({"cmake", "--build", build.string()});
  if (!fs::exists(worker)) throw UsageError(fmt::format("'{}' builds no attnbench-worker", revision));
  return worker.string();
}

}  // namespace

WorkerProgram worker_of(const std::string& build_or_revision) {
  fs::path path = build_or_revision;
  if (fs::is_directory(path)) path /= "attnbench-worker";
  else if (path.filename() == "attnbench") path = path.parent_path() / "attnbench-worker";
  else if (!fs::exists(path)) return {build_revision(build_or_revision)};
  if (access(path.c_str(), X_OK) != 0)
    throw UsageError(fmt::format("{}: {}; expected a worker that can be run", path.string(), std::strerror(errno)));
  return {fs::absolute(path).string()};
}

}  // namespace attnbench
