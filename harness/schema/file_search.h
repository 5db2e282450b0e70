// Where driver and worker look for the files that a case names, such as that of a Python method.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace attnbench {

// The first file of this name in the folders; the name itself if none has it. An absolute name is looked for by itself. Throws
// std::filesystem::filesystem_error for a folder that cannot be searched.
std::string find_in_folders(const std::vector<std::string>& folders, const std::filesystem::path& name);

}  // namespace attnbench
