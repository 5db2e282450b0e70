// Makes checkouts that leave the repository as it is, and copies of its working tree.
#include "harness/gate/checkout.h"

#include <fmt/format.h>

#include <fstream>
#include <string_view>

#include "harness/files/replace_file.h"
#include "harness/gate/git.h"
#include "harness/process/interrupts.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

// The path of a file in git's folder of the repository, such as "objects"; right also if the working tree is one of several.
fs::path git_path(const fs::path& repository, const std::string& name) {
  return first_line(git_output(repository.string(), {"rev-parse", "--path-format=absolute", "--git-path", name}));
}

// Makes a repository without files in `folder`, whose HEAD is the commit. It borrows the objects of the original. It has the
// original's tags, from which packages compute their version, and the address of its origin, from which a user's command can
// fetch what the copy lacks.
void make_repository(const fs::path& original, const std::string& commit, const fs::path& folder) {
  const auto format = first_line(git_output(original.string(), {"rev-parse", "--show-object-format"}));
  git_output(folder.parent_path().string(), {"init", "--quiet", "--template=", "--object-format=" + format, folder.string()});
  const auto information = folder / ".git/objects/info";
  fs::create_directories(information);
  replace_file(information.string(), "alternates", git_path(original, "objects").string() + "\n");
  if (const auto shallow = git_path(original, "shallow"); fs::exists(shallow)) fs::copy_file(shallow, folder / ".git/shallow");
  const auto tags = git_output(original.string(), {"for-each-ref", "--format=create %(refname) %(objectname)", "refs/tags"});
  if (!tags.empty()) git_output(folder.string(), {"update-ref", "--stdin"}, tags);
  git_output(folder.string(), {"update-ref", "--no-deref", "HEAD", commit});
  const auto origin = ask_git(original.string(), {"config", "--get", "remote.origin.url"});
  if (origin.succeeded()) git_output(folder.string(), {"config", "remote.origin.url", first_line(origin.output)});
}

// Whether the file holds a pointer of Git LFS in place of its contents.
bool is_pointer(const fs::path& file) {
  constexpr std::string_view kBeginning = "version https://git-lfs.github.com/spec/";
  constexpr uintmax_t kMaxPointerBytes = 1024;
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(file, error)) || fs::file_size(file, error) > kMaxPointerBytes) return false;
  std::string text(kBeginning.size(), '\0');
  return std::ifstream(file, std::ios::binary).read(text.data(), std::streamsize(text.size())) && text == kBeginning;
}

// The submodules and the contents of Git LFS that are missing from the files that git tracks in the folder.
std::vector<std::string> parts_lacking(const fs::path& folder) {
  constexpr std::string_view kSubmoduleMode = "160000";
  std::vector<std::string> lacking;
  // Each entry is "MODE OBJECT STAGE<tab>PATH".
  for (const auto& entry : nul_separated(git_output(folder.string(), {"ls-files", "-z", "--stage"}))) {
    const auto name = entry.substr(entry.find('\t') + 1);
    if (entry.starts_with(kSubmoduleMode)) lacking.push_back(fmt::format("the submodule {}", name));
    else if (is_pointer(folder / name)) lacking.push_back(fmt::format("the contents of {}, which Git LFS holds", name));
  }
  return lacking;
}

// Copies a file or a symbolic link with its permissions. Does nothing for a file that was deleted, and for a folder, which is a
// submodule or another repository. Throws UsageError that names both paths, since either may be what fails.
void copy_entry(const fs::path& from, const fs::path& to) {
  try {
    const auto status = fs::symlink_status(from);
    if (!fs::is_regular_file(status) && !fs::is_symlink(status)) return;
    fs::create_directories(to.parent_path());
    fs::copy(from, to, fs::copy_options::copy_symlinks);
  } catch (const fs::filesystem_error& error) {
    throw UsageError(fmt::format("{}: cannot be copied to {}: {}", from.string(), to.string(), error.code().message()));
  }
}

}  // namespace

fs::path find_working_tree(const std::string& folder) {
  if (!fs::is_directory(folder)) throw UsageError(fmt::format("{}: no such folder, expected a git repository", folder));
  const auto answer = ask_git(folder, {"rev-parse", "--show-toplevel"});
  if (!answer.succeeded())
    throw UsageError(fmt::format("{}: expected the working tree of a git repository; git {}", folder, answer.failure()));
  return fs::canonical(answer.output.substr(0, answer.output.rfind('\n')));
}

Checkout check_out(const fs::path& repository, const std::string& commit, const fs::path& folder) {
  make_repository(repository, commit, folder);
  git_output(folder.string(), {"reset", "--quiet", "--hard"});
  return {.folder = folder, .commit = commit, .lacking = parts_lacking(folder)};
}

Checkout copy_working_tree(const fs::path& repository, const fs::path& folder) {
  const auto commit = first_line(git_output(repository.string(), {"rev-parse", "--verify", "HEAD^{commit}"}));
  make_repository(repository, commit, folder);
  git_output(folder.string(), {"read-tree", "HEAD"});
  const auto files =
      git_output(repository.string(), {"ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"});
  for (const auto& name : nul_separated(files)) {
    throw_if_interrupted();
    copy_entry(repository / name, folder / name);
  }
  const auto changes = git_output(repository.string(), {"status", "--porcelain", "--ignore-submodules=dirty"});
  return {.folder = folder, .commit = commit, .has_changes = !changes.empty(), .lacking = parts_lacking(folder)};
}

}  // namespace attnbench
