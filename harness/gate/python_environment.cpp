// Makes a virtual environment with the packages of the harness, and installs those of one side into it.
#include "harness/gate/python_environment.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "harness/gate/git.h"
#include "harness/process/captured_output.h"
#include "harness/schema/json.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

// Makes the environment in the folder that the first argument names. The file attnbench-harness.pth adds the folders of the
// packages of the running interpreter. pip is that of the running interpreter, called from the environment, because installing
// another one takes seconds; only if there is none, ensurepip installs one.
constexpr const char* kMakeEnvironment = R"(
import importlib.util, os, sys, sysconfig, venv
folder, with_pip = sys.argv[1], sys.argv[2] == "pip"
shares_pip = importlib.util.find_spec("pip") is not None
venv.create(folder, symlinks=True, with_pip=with_pip and not shares_pip)
packages = sysconfig.get_path("purelib", "venv", {"base": folder, "installed_base": folder})
shared = [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
with open(os.path.join(packages, "attnbench-harness.pth"), "w") as file:
    file.writelines(path + "\n" for path in shared)
if with_pip and shares_pip:
    for name in ("pip", "pip3"):
        path = os.path.join(folder, "bin", name)
        with open(path, "w") as file:
            file.write('#!/bin/sh\nexec "${0%/*}/python" -m pip "$@"\n')
        os.chmod(path, 0o755)
)";

// Prints the folder and the version of torch, without importing it.
constexpr const char* kFindTorch = R"(
import importlib.metadata, importlib.util, json, os
found = importlib.util.find_spec("torch")
folder = os.path.realpath(os.path.dirname(found.origin)) if found else ""
print(json.dumps({"folder": folder, "version": importlib.metadata.version("torch") if found else ""}))
)";

// What a Python program prints. The words must contain -P, so that modules of the current folder are not imported instead of
// those of Python. Throws UsageError with Python's message if it fails.
std::string printed_by(std::vector<std::string> words, const std::string& what) {
  const auto python = words[0];
  // Variables such as PYTHONPATH would add the same packages to both sides.
  words.insert(words.begin(), {"env", "-u", "PYTHONPATH", "-u", "PYTHONHOME"});
  auto captured = run_captured({.words = std::move(words), .grace_s = 1});
  if (!captured.succeeded()) throw UsageError(fmt::format("{}: {} failed; it {}", python, what, captured.failure()));
  return std::move(captured.output);
}

struct Torch {
  std::string folder, version;  // both empty if there is none
};

Torch find_torch(const std::string& python) {
  const auto text = printed_by({python, "-P", "-c", kFindTorch}, "looking for torch");
  try {
    const auto found = parse_json(text);
    return {found.at("folder").get<std::string>(), found.at("version").get<std::string>()};
  } catch (const std::exception& error) {
    throw UsageError(fmt::format("{}: looking for torch printed '{}', expected JSON: {}", python, text, error_text(error)));
  }
}

}  // namespace

PythonEnvironment::PythonEnvironment(std::string harness, std::filesystem::path folder, bool with_pip)
    : harness_(std::move(harness)), folder_(std::move(folder)) {
  printed_by({harness_, "-P", "-c", kMakeEnvironment, folder_.string(), with_pip ? "pip" : ""}, "making a virtual environment");
}

std::vector<std::string> PythonEnvironment::launcher(const std::filesystem::path& work) const {
  const auto programs = (folder_ / "bin").string();
  const char* const path = std::getenv("PATH");
  std::vector<std::string> words = {"env", "-C", work.string(), "-u", "PYTHONPATH", "-u", "PYTHONHOME"};
  // Programs in the copy must not reach the original repository by git's variables.
  const auto removed = without_git_variables();
  words.insert(words.end(), removed.begin(), removed.end());
  words.insert(words.end(),
               {"VIRTUAL_ENV=" + folder_.string(), fmt::format("PATH={}:{}", programs, path ? path : "/usr/bin:/bin"),
                fmt::format("ATTNBENCH_PYTHON={}/python", programs)});
  return words;
}

std::string PythonEnvironment::torch_fault() const {
  const auto harness = find_torch(harness_), here = find_torch((folder_ / "bin/python").string());
  if (here.folder == harness.folder) return "";
  const auto has = here.folder.empty() ? "has no torch" : fmt::format("has torch {} in {}", here.version, here.folder);
  return fmt::format("{}, expected the harness's torch {} in {}; let what the repository installs accept that version", has,
                     harness.version, harness.folder);
}

}  // namespace attnbench
