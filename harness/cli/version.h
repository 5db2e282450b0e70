// Which version of attnbench this is, and how it was built.
#pragma once

#include <string>

namespace attnbench {

// Lines of text: the version, the git revision, the build and the compiler.
std::string version_text();

}  // namespace attnbench
