// Where the files of attnbench are that belong to the running program. In a build folder, the worker is beside the driver, and
// the sweeps are in the project, which is the folder above. An installation has the folders that CMake's GNUInstallDirs names:
// the driver in bin, the worker in libexec/attnbench, and the sweeps in share/attnbench. They are found from the place of the
// running program, so that an installation can be moved.
#pragma once

#include <filesystem>
#include <string>

namespace attnbench {

// The folder of the running program. Throws UsageError if /proc is not mounted.
std::filesystem::path program_folder();

// Whether the running program is that of an installation.
bool is_installed();

// The folder that has the folders sweeps, experiments and plots.
std::filesystem::path project_folder();

// The program of this name, such as attnbench-worker, that belongs to a driver in this folder. It may not exist.
std::filesystem::path internal_program(const std::filesystem::path& driver_folder, const std::string& name);

}  // namespace attnbench
