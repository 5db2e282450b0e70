#include "harness/cli/version.h"

// This header changes with every commit, so no other file of the driver includes it.
#include "build_info.h"

namespace attnbench {

std::string version_text() {
  return std::string("attnbench " ATTNBENCH_VERSION "\nrevision " ATTNBENCH_REVISION) +
         (sizeof(ATTNBENCH_WHY_REVISION_UNKNOWN) > 1 ? " (" ATTNBENCH_WHY_REVISION_UNKNOWN ")" : "") +
         (ATTNBENCH_DIRTY ? " with uncommitted changes" : "") +
         "\nbuild " ATTNBENCH_BUILD ", " ATTNBENCH_COMPILER ", " ATTNBENCH_COMPILER_FLAGS "\n";
}

}  // namespace attnbench
