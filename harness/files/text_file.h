// Reads files that a user names.
#pragma once

#include <cstddef>
#include <string>

namespace attnbench {

// Returns the contents of the file. Throws UsageError that names the path if the file does not exist, is not a regular file (a
// device such as /dev/zero might never end), is longer than `max_bytes`, or cannot be read.
std::string read_text_file(const std::string& path, size_t max_bytes);

}  // namespace attnbench
