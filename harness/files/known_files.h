// Finds the project's files, such as sweeps, by their names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace attnbench {

// What a user can name without its path.
struct FileKind {
  std::string folder;  // such as "sweeps"
  std::string name;    // of one such file in messages, such as "sweep"
};
inline const FileKind kSweeps = {"sweeps", "sweep"};
inline const FileKind kTrainings = {"experiments/settings", "training"};
inline const FileKind kSpeeds = {"experiments/speed", "speed measurement"};

// The TOML files in that folder of the current folder, and in that of project_folder(). Of two files with the same name only the
// one in the current folder is listed.
std::vector<std::filesystem::path> known_files(const FileKind& kind);

// The path of the file that the user means. `given` is a path, or the name of a known file: "figure1" is sweeps/figure1.toml.
// Throws UsageError, which lists the known ones, for a name that is not among them.
std::string find_file(const FileKind& kind, const std::string& given);

}  // namespace attnbench
