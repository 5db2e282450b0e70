// Writes the version, the revision and the build as `attnbench --version` prints them.
#include "harness/cli/version.h"

#include "harness/schema/build_info.h"

namespace attnbench {

std::string version_text() {
  const auto& info = kBuildInfo;
  const std::string why = info.why_unknown;
  return std::string("attnbench ") + info.version + "\nrevision " + info.revision + (why.empty() ? "" : " (" + why + ")") +
         (info.dirty ? " with uncommitted changes" : "") + "\nbuild " + info.build + ", " + info.compiler + ", " +
         info.compiler_flags + "\n";
}

}  // namespace attnbench
