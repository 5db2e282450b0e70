// Lists the files of a kind, and finds one by its name or its path, with suggestions for an unknown name.
#include "harness/files/known_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/files/installation.h"
#include "harness/text/errors.h"
#include "harness/text/nearest.h"

namespace attnbench {

namespace fs = std::filesystem;

std::vector<fs::path> known_files(const FileKind& kind) {
  std::vector<fs::path> known;
  const auto is_known = [&](const fs::path& file) {
    return std::any_of(known.begin(), known.end(), [&](const fs::path& other) { return other.stem() == file.stem(); });
  };
  for (const fs::path& folder : {fs::path(kind.folder), project_folder() / kind.folder}) {
    std::error_code missing;
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder, missing))
      if (entry.path().extension() == ".toml" && !is_known(entry.path())) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    known.insert(known.end(), files.begin(), files.end());
  }
  return known;
}

std::string find_file(const FileKind& kind, const std::string& given) {
  std::error_code missing;
  const bool is_file = fs::exists(given, missing) && !fs::is_directory(given, missing);
  if (is_file || given.find('/') != std::string::npos || given.ends_with(".toml")) return given;
  std::vector<std::string> names;
  for (const auto& file : known_files(kind)) {
    if (file.stem() == given) return file.string();
    names.push_back(file.stem().string());
  }
  throw UsageError(fmt::format("unknown {} '{}'{}", kind.name, given, suggestion(given, names)));
}

}  // namespace attnbench
