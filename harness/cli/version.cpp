#include "harness/cli/version.h"

#include "harness/schema/build_info.h"

namespace attnbench {

std::string version_text() {
  const auto& info = kBuildInfo;
  return std::string("attnbench ") + info.version + "\nrevision " + info.revision +
         (info.dirty ? " with uncommitted changes" : "") + "\nbuild " + info.build + ", " + info.compiler + ", " +
         info.compiler_flags + "\n";
}

}  // namespace attnbench
