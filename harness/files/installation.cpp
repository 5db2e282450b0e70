// Finds the program's own place, and from it the project or the installation around it.
#include "harness/files/installation.h"

#include <fmt/format.h>

#include <system_error>

#include "harness/text/errors.h"

// CMake gives these paths, from the folder of the installed driver.
#if !defined(ATTNBENCH_DATA_FROM_PROGRAM) || !defined(ATTNBENCH_LIBEXEC_FROM_PROGRAM)
#error "harness/CMakeLists.txt defines where an installation has its files"
#endif

namespace attnbench {

namespace fs = std::filesystem;

namespace {

fs::path installed_data() { return (program_folder() / ATTNBENCH_DATA_FROM_PROGRAM).lexically_normal(); }

}  // namespace

fs::path program_folder() {
  std::error_code error;
  const auto program = fs::read_symlink("/proc/self/exe", error);
  if (error)
    throw UsageError(fmt::format("/proc/self/exe: {}; expected a mounted /proc, which tells where the files of attnbench are",
                                 error.message()));
  return program.parent_path();
}

bool is_installed() {
  std::error_code error;
  return fs::is_directory(installed_data() / "sweeps", error);
}

fs::path project_folder() { return is_installed() ? installed_data() : program_folder().parent_path(); }

fs::path internal_program(const fs::path& driver_folder, const std::string& name) {
  auto beside = driver_folder / name;
  const auto installed = (driver_folder / ATTNBENCH_LIBEXEC_FROM_PROGRAM / name).lexically_normal();
  std::error_code error;
  return !fs::exists(beside, error) && fs::exists(installed, error) ? installed : beside;
}

}  // namespace attnbench
