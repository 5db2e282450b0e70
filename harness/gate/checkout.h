// Copies of the states of a git repository that a gate compares.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace attnbench {

// A copy of one state of a repository. It is a separate repository, which borrows the objects of the original (git's
// "alternates") and has its tags. The original is only read, so nothing ever has to be undone in it.
struct Checkout {
  std::filesystem::path folder;
  std::string commit;                // the full id of the commit
  bool has_changes = false;          // whether files differ from the commit
  std::vector<std::string> lacking;  // what is missing, because nothing is fetched: "the submodule x", "the contents of x …"
};

// The folder at the top of the working tree that `folder` lies in, as a canonical path. Throws UsageError if it lies in none.
std::filesystem::path find_working_tree(const std::string& folder);

// Checks the commit out in `folder`, which must not exist. Submodules stay empty, and files of Git LFS stay pointers. Throws
// UsageError with git's message if that fails, and Interrupted on SIGINT or SIGTERM.
Checkout check_out(const std::filesystem::path& repository, const std::string& commit, const std::filesystem::path& folder);

// Copies the working tree as it is: tracked files with uncommitted changes, and untracked files that git does not ignore. Throws
// as check_out() does.
Checkout copy_working_tree(const std::filesystem::path& repository, const std::filesystem::path& folder);

}  // namespace attnbench
