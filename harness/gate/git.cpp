// Runs git without the variables of its environment, and turns its failures into errors.
#include "harness/gate/git.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "harness/text/errors.h"

namespace attnbench {
namespace {

// Time for git to remove its lock files.
constexpr double kGitGraceS = 10;

// The words with which this program starts git.
std::vector<std::string> git_words() {
  std::vector<std::string> words = {"env"};
  const auto removed = without_git_variables();
  words.insert(words.end(), removed.begin(), removed.end());
  // With these, git does not refresh the index, ask for a password, or fetch objects that a partial clone lacks.
  words.insert(words.end(), {"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "git"});
  // With these, it starts no monitor of the file system, runs no hooks and no filters of Git LFS, and contacts no other
  // repository.
  for (const auto* setting : {"core.fsmonitor=false", "core.hooksPath=/dev/null", "filter.lfs.smudge=", "filter.lfs.clean=",
                              "filter.lfs.process=", "filter.lfs.required=false", "protocol.allow=never"})
    words.insert(words.end(), {"-c", setting});
  return words;
}

}  // namespace

std::vector<std::string> without_git_variables() {
  std::vector<std::string> words;
  for (const auto* variable : {"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY",
                               "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX"})
    words.insert(words.end(), {"-u", variable});
  return words;
}

CapturedOutput ask_git(const std::string& folder, const std::vector<std::string>& words, const std::string& input) {
  auto all = git_words();
  all.insert(all.end(), {"-C", folder});
  all.insert(all.end(), words.begin(), words.end());
  return run_captured({.words = std::move(all), .input = input, .grace_s = kGitGraceS});
}

std::string git_output(const std::string& folder, const std::vector<std::string>& words, const std::string& input) {
  auto answer = ask_git(folder, words, input);
  if (!answer.succeeded()) throw UsageError(fmt::format("{}: `git {}` {}", folder, fmt::join(words, " "), answer.failure()));
  return std::move(answer.output);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<std::string> nul_separated(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (auto end = text.find('\0'); end != std::string::npos; end = text.find('\0', begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string find_commit(const std::string& folder, const std::string& revision) {
  if (revision.starts_with('-'))
    throw UsageError(
        fmt::format("the revision '{}' looks like an option, expected a git revision such as origin/main", revision));
  const auto answer = ask_git(folder, {"rev-parse", "--verify", "--quiet", revision + "^{commit}"});
  if (answer.succeeded()) return first_line(answer.output);
  // For a revision that does not exist, git ends with 1 or, because of --quiet, says nothing.
  if (answer.result.end == ChildEnd::exited && (answer.result.code == 1 || answer.errors.empty())) return "";
  throw UsageError(fmt::format("git cannot look for the revision '{}' in {}: it {}", revision,
                               std::filesystem::absolute(folder).lexically_normal().string(), answer.failure()));
}

}  // namespace attnbench
