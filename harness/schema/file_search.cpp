// Looks into one folder after the other.
#include "harness/schema/file_search.h"

namespace attnbench {

std::string find_in_folders(const std::vector<std::string>& folders, const std::filesystem::path& name) {
  for (const std::filesystem::path folder : folders)
    if (const auto path = folder / name; std::filesystem::exists(path))
      return path.lexically_normal().string();  // an absolute name replaces the folder
  return name.string();
}

}  // namespace attnbench
