// The file of a plug-in: its digest, and what it was built with. Nothing of the library runs when it is read.
#pragma once

#include <string>
#include <string_view>

namespace attnbench {

// What a plug-in was built with (attn::PluginStamp).
struct PluginVersions {
  std::string interface_version, torch_version;
};

// Finds the versions in the contents of the file at `path`. Throws c10::ValueError that names the file if it is not a 64-bit ELF
// library or has no valid stamp of a plug-in.
PluginVersions versions_in(const std::string& path, std::string_view contents);

// Throws c10::ValueError that names the file and both versions if this worker was built with others.
void check_versions(const std::string& path, const PluginVersions& versions);

// The contents of the file. Throws c10::ValueError that names the path if it cannot be read or is longer than 1 GiB.
std::string read_plugin_file(const std::string& path);

}  // namespace attnbench
