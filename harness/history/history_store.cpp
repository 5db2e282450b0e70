// Appends to files under a lock, and to branches with git's plumbing, which needs no checkout.
#include "harness/history/history_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "harness/files/file_descriptor.h"
#include "harness/files/replace_file.h"
#include "harness/files/text_file.h"
#include "harness/gate/git.h"
#include "harness/process/interrupts.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

constexpr int kMostPushes = 20;
constexpr auto kFileEnding = ".jsonl";
constexpr auto kHistoryAuthor = "attnbench history";

struct RemoteBranch {
  std::string remote, branch;
  std::string reference() const { return "refs/heads/" + branch; }
};

RemoteBranch branch_of(const std::string& place) {
  const auto slash = place.find('/');
  if (slash == 0 || slash == std::string::npos || slash + 1 == place.size() || place.starts_with('-'))
    throw UsageError(fmt::format("'{}': expected a file that ends in {}, or a branch of a remote such as origin/benchmarks",
                                 place, kFileEnding));
  return {place.substr(0, slash), place.substr(slash + 1)};
}

// git, which may reach the remote.
CapturedOutput ask_remote(const std::string& repository, std::vector<std::string> words) {
  words.insert(words.begin(), {"-c", "protocol.allow=user", "-c", "protocol.file.allow=always"});
  return ask_git(repository, words);
}

std::string remote_output(const std::string& repository, const std::vector<std::string>& words) {
  auto answer = ask_remote(repository, words);
  if (!answer.succeeded()) throw UsageError(fmt::format("`git {}` {}", words.front(), answer.failure()));
  return std::move(answer.output);
}

// The commit that the branch is at; empty if there is no such branch.
std::string tip_of(const std::string& repository, const RemoteBranch& place) {
  const auto answer = remote_output(repository, {"ls-remote", place.remote, place.reference()});
  return answer.substr(0, answer.find('\t'));
}

std::string text_at(const std::string& repository, const std::string& commit) {
  const auto listed = git_output(repository, {"ls-tree", "-z", commit, "--", kHistoryFile});
  return listed.empty() ? "" : git_output(repository, {"show", fmt::format("{}:{}", commit, kHistoryFile)});
}

// The tree of the commit, or none, with this text as the history.
std::string tree_with(const std::string& repository, const std::string& commit, const std::string& text) {
  const auto blob = first_line(git_output(repository, {"hash-object", "-w", "--stdin"}, text));
  std::string entries;
  if (!commit.empty())
    for (const auto& entry : nul_separated(git_output(repository, {"ls-tree", "-z", commit})))
      if (entry.substr(entry.find('\t') + 1) != kHistoryFile) entries += entry + std::string(1, '\0');
  entries += fmt::format("100644 blob {}\t{}", blob, kHistoryFile) + std::string(1, '\0');
  return first_line(git_output(repository, {"mktree", "-z"}, entries));
}

// A commit on top of `parent`, by the user that git knows or, where it knows none, in the name of this command.
std::string commit_of(const std::string& repository, const std::string& tree, const std::string& parent,
                      const std::string& message) {
  std::vector<std::string> words;
  if (!ask_git(repository, {"config", "user.email"}).succeeded())
    words = {"-c", fmt::format("user.name={}", kHistoryAuthor), "-c", "user.email=attnbench@localhost"};
  words.insert(words.end(), {"commit-tree", tree, "-m", message});
  if (!parent.empty()) words.insert(words.end(), {"-p", parent});
  return first_line(git_output(repository, words));
}

void fetch(const std::string& repository, const RemoteBranch& place) {
  remote_output(repository, {"fetch", "--quiet", "--no-tags", "--no-write-fetch-head", place.remote, place.reference()});
}

std::string joined(const std::string& text, const std::string& added) {
  return text + (text.empty() || text.ends_with('\n') ? "" : "\n") + added;
}

void append_to_branch(const std::string& repository, const RemoteBranch& place, const std::string& added,
                      const std::string& message) {
  std::mt19937 random(std::random_device{}());
  for (int push = 1;; ++push) {
    const auto tip = tip_of(repository, place);
    if (!tip.empty()) fetch(repository, place);
    const auto text = tip.empty() ? "" : text_at(repository, tip);
    read_history(text, fmt::format("{}/{}", place.remote, place.branch));
    const auto commit = commit_of(repository, tree_with(repository, tip, joined(text, added)), tip, message);
    const auto pushed =
        ask_remote(repository, {"push", "--quiet", fmt::format("--force-with-lease={}:{}", place.reference(), tip), place.remote,
                                fmt::format("{}:{}", commit, place.reference())});
    if (pushed.succeeded()) return;
    // Another job was faster if the branch is elsewhere now.
    if (push == kMostPushes || tip_of(repository, place) == tip)
      throw UsageError(
          fmt::format("the history was not pushed to {}/{}: `git push` {}", place.remote, place.branch, pushed.failure()));
    print_notice(fmt::format("another job has pushed to {}/{}; trying again\n", place.remote, place.branch));
    std::this_thread::sleep_for(std::chrono::milliseconds(std::uniform_int_distribution<int>(0, 100 * push)(random)));
    throw_if_interrupted();
  }
}

void append_to_file(const std::string& path, const std::string& added) {
  FileDescriptor file;
  file.open(path, O_RDWR | O_CREAT | O_APPEND);
  if (flock(file, LOCK_EX) != 0) fail_on(path, "lock it");
  struct stat status = {};
  if (fstat(file, &status) != 0) fail_on(path, "read it");
  if (!S_ISREG(status.st_mode)) throw UsageError(fmt::format("{}: not a regular file", path));
  // A line that a killed program left unfinished is ended, so that the next one stays whole.
  char last = '\n';
  if (status.st_size > 0 && pread(file, &last, 1, status.st_size - 1) != 1) fail_on(path, "read it");
  if (last != '\n') {
    const auto text = read_text_file(path, kLongestHistory);
    const auto whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    if (ftruncate(file, off_t(whole)) != 0) fail_on(path, "remove an unfinished line");
    status.st_size = off_t(whole);
  }
  try {
    write_all(file, added, path);
  } catch (const UsageError&) {
    // Half of the lines would be a run of half of the cases.
    if (ftruncate(file, status.st_size) != 0) fail_on(path, "remove unfinished lines");
    throw;
  }
}

}  // namespace

bool is_history_file(const std::string& place) { return place.ends_with(kFileEnding); }

std::string read_history_text(const std::string& place, const std::string& repository) {
  if (is_history_file(place)) return read_text_file(place, kLongestHistory);
  const auto branch = branch_of(place);
  const auto tip = tip_of(repository, branch);
  if (tip.empty()) return "";
  fetch(repository, branch);
  return text_at(repository, tip);
}

void append_history(const std::string& place, const std::string& repository, const std::vector<HistoryLine>& lines) {
  std::string added;
  for (const auto& line : lines) added += text_of(line);
  if (is_history_file(place)) {
    append_to_file(place, added);
    return;
  }
  append_to_branch(repository, branch_of(place), added,
                   fmt::format("Add {} of {}", count_of(lines.size(), "value"), lines.front().commit.substr(0, 12)));
}

}  // namespace attnbench
