// Copies each side of a repository, makes its Python environment, and runs the user's command in it.
#include "harness/gate/repository_sides.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/gate/checkout.h"
#include "harness/gate/git.h"
#include "harness/gate/python_environment.h"
#include "harness/process/captured_output.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

// Time for what the command has started to end after SIGTERM.
constexpr double kCommandGraceS = 10;

// The path of the suite from the top of the repository.
fs::path path_in_repository(const fs::path& root, const std::string& suite) {
  if (suite.empty()) return {};
  if (!fs::is_regular_file(suite)) throw UsageError(fmt::format("{}: no such file, expected a sweep file", suite));
  const auto path = fs::canonical(suite).lexically_relative(root);
  if (path.empty() || *path.begin() == "..")
    throw UsageError(
        fmt::format("{} lies outside of the repository {}; expected a suite in it, whose methods are files of the "
                    "repository",
                    suite, root.string()));
  return path;
}

std::string find_base(const fs::path& root, const std::string& base) {
  auto commit = find_commit(root.string(), base);
  if (commit.empty())
    throw UsageError(
        fmt::format("'{}' is no git revision of {}; fetch it first if another repository has it", base, root.string()));
  return commit;
}

void run_prepare(const std::string& name, const std::string& command, const PythonEnvironment& environment,
                 const fs::path& work) {
  auto words = environment.launcher(work);
  words.insert(words.end(), {"PIP_DISABLE_PIP_VERSION_CHECK=1", "sh", "-c", command});
  const auto captured = run_captured({.words = std::move(words), .grace_s = kCommandGraceS, .ends_as_group = true});
  if (!captured.succeeded())
    throw UsageError(fmt::format("--prepare: `{}` in the copy of the {} {}", command, name, captured.failure()));
}

}  // namespace

RepositorySides::RepositorySides(const WorkerProgram& harness, const RepositoryOptions& options, const std::string& suite)
    : root_(find_working_tree(options.root)), scratch_(root_), suite_(path_in_repository(root_, suite)) {
  if (!harness.plugins.empty())
    throw UsageError(
        fmt::format("--plugin {} would be the same on both sides; name it in the suite, as plugins = [\"PATH\"], so that "
                    "each side has its own",
                    harness.plugins.front()));
  const auto commit = options.base.empty() ? "" : find_base(root_, options.base);
  // The names of the folders are equally long, because the length of a path can move what a program has in its memory.
  if (!commit.empty()) sides_.push_back(side_of("base", "base", harness, commit, options));
  sides_.push_back(side_of("candidate", "head", harness, "", options));
}

// The side of the commit or, if that is empty, of the working tree.
Side RepositorySides::side_of(const std::string& name, const std::string& folder, const WorkerProgram& harness,
                              const std::string& commit, const RepositoryOptions& options) const {
  const auto note = [&](const std::string& text) {
    if (!options.quiet) print_notice(text + "\n");
  };
  const auto copy = scratch_.path() / folder;
  const auto checkout = commit.empty() ? copy_working_tree(root_, copy) : check_out(root_, commit, copy);
  if (commit.empty() && !suite_.empty() && !fs::exists(copy / suite_))
    throw UsageError(fmt::format("{} is ignored by git; expected a suite that belongs to the repository", suite_.string()));
  note(fmt::format("the {} is commit {}{}", name, checkout.commit.substr(0, 12),
                   checkout.has_changes ? " with uncommitted changes" : ""));
  if (!checkout.lacking.empty()) note(fmt::format("the {} lacks {}", name, fmt::join(checkout.lacking, ", ")));

  const PythonEnvironment environment(options.python, scratch_.path() / (folder + "-python"), !options.prepare.empty());
  if (!options.prepare.empty()) {
    note(fmt::format("preparing the {}: {}", name, options.prepare));
    run_prepare(name, options.prepare, environment, copy);
  }
  Side side{.name = name, .worker = {.path = fs::absolute(harness.path).string(), .launcher = environment.launcher(copy)}};
  side.files = SideFiles{.root = copy, .methods = (copy / suite_).parent_path()};
  side.may_lack_files = !commit.empty();
  if (!suite_.empty()) side.unusable = environment.torch_fault();
  side.source = {{"commit", checkout.commit}, {"uncommitted_changes", checkout.has_changes}, {"lacking", checkout.lacking}};
  return side;
}

}  // namespace attnbench
