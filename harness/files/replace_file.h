// Writes files so that a full disk, a kill or a power cut leaves them complete.
#pragma once

#include <string>

namespace attnbench {

// Writes the whole text to the descriptor. Throws UsageError that names the path if this fails.
void write_all(int file, const std::string& text, const std::string& path);

// Replaces a file of the folder in one step, so that nobody reads half of it. Where this fails, throws UsageError that names the
// file, and leaves the old file as it was. Writes nothing through a symbolic link.
void replace_file(const std::string& folder, const std::string& name, const std::string& text);
// The same for a file that the user names.
void replace_file(const std::string& path, const std::string& text);

}  // namespace attnbench
