// What this build was made from. CMake writes the values in every build (cmake/build_info.cmake).
#pragma once

namespace attnbench {

struct BuildInfo {
  const char* version;         // such as "0.2.0"
  const char* revision;        // the git revision of the sources, or "unknown"
  const char* why_unknown;     // why the revision is unknown, in the words of git; empty if it is known
  bool dirty;                  // whether the sources differ from that revision
  const char* changes;         // a digest of these differences; empty if there are none
  const char* build;           // whether the build has CUDA, and its build type
  const char* compiler;        // its name and version
  const char* compiler_flags;  // without those of single sources
};

extern const BuildInfo kBuildInfo;

}  // namespace attnbench
