// The two sides of a gate in any git repository: its working tree, and one of its revisions.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/gate/gate_suite.h"
#include "harness/gate/scratch_folder.h"
#include "harness/process/worker_process.h"

namespace attnbench {

struct RepositoryOptions {
  std::string root;     // a folder of the repository
  std::string base;     // the git revision to compare with; empty for the working tree alone
  std::string python;   // the interpreter of the harness
  std::string prepare;  // shell command that is run in each side's copy, with that side's Python environment active; may be empty
  bool quiet = false;   // print no progress to standard error
};

// Both sides have the same worker. Each runs in a copy of its state of the repository, with a Python environment of its own, in a
// folder outside of the repository which the destructor removes. The repository itself is only read.
class RepositorySides {
 public:
  // `suite` is the path of a sweep file in the repository; empty for a command, which needs no torch. Makes the copies and the
  // environments, and runs the command `prepare`. Throws UsageError for a folder that is no repository, a revision that does not
  // exist, a suite outside of the repository, and a command that fails, and Interrupted on SIGINT or SIGTERM.
  RepositorySides(const WorkerProgram& harness, const RepositoryOptions& options, const std::string& suite);

  // The base, unless there is none, and the candidate.
  const std::vector<Side>& sides() const { return sides_; }
  // The folder that the destructor removes.
  const std::filesystem::path& scratch() const { return scratch_.path(); }
  // The path of the suite in the candidate's copy, and in the repository.
  std::string suite() const { return (sides_.back().files->root / suite_).string(); }

 private:
  Side side_of(const std::string& name, const std::string& folder, const WorkerProgram& harness, const std::string& commit,
               const RepositoryOptions& options) const;

  std::filesystem::path root_;
  ScratchFolder scratch_;
  std::filesystem::path suite_;  // from the top of the repository
  std::vector<Side> sides_;
};

}  // namespace attnbench
