// The Python environment of one side of a gate: a virtual environment that adds packages to those of the harness.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace attnbench {

class PythonEnvironment {
 public:
  // Makes a virtual environment in `folder`. Its own packages come first, then those of the interpreter `harness`, so that torch
  // is the one that the worker uses. Packages that are installed there as editable are not seen, because their files would be the
  // same on both sides. `with_pip` also installs pip. Throws UsageError with Python's message if that fails, and Interrupted on
  // SIGINT or SIGTERM.
  PythonEnvironment(std::string harness, std::filesystem::path folder, bool with_pip);

  // The words that, put before those of a program, start it in the folder `work` with this environment active.
  std::vector<std::string> launcher(const std::filesystem::path& work) const;

  // Why Python methods cannot run in this environment: it has another torch than the harness, or none. Empty if they can. Throws
  // as the constructor does.
  std::string torch_fault() const;

 private:
  std::string harness_;
  std::filesystem::path folder_;
};

}  // namespace attnbench
