// Finds sweep files by their names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace attnbench {

// The sweep files in the folder `sweeps` of the current folder, and in the project's folder `sweeps`, which lies beside the
// folder that this program was built in. Of two files with the same name only the one in the current folder is listed.
std::vector<std::filesystem::path> known_sweeps();

// The path of the sweep file that the user means. `given` is a path, or the name of a known sweep: "figure1" is
// sweeps/figure1.toml. Throws UsageError, which lists the known sweeps, for a name that is not among them.
std::string find_sweep(const std::string& given);

}  // namespace attnbench
