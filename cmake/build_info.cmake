# Runs in every build: writes build_info.cpp with the git revision, but only if its contents have changed. Only files that the programs
# are built from count, so that results, figures and pages may be committed between two measurements of one build.
set(sources CMakeLists.txt cmake attn baselines experiments harness python ":(exclude)experiments/published"
            ":(exclude)experiments/parts.toml" ":(exclude)experiments/reproduce")
execute_process(COMMAND git -C "${SOURCE}" log -1 --abbrev=12 --format=%h -- ${sources} OUTPUT_VARIABLE revision
                RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(dirty false)
set(changes "")
if(failed OR NOT revision)
  set(revision "unknown")
else()
  execute_process(COMMAND git -C "${SOURCE}" status --porcelain -- ${sources} OUTPUT_VARIABLE status
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(status)
    set(dirty true)
    # The digest covers the differences of the files that git knows, and the contents of those that it does not know.
    execute_process(COMMAND git -C "${SOURCE}" diff HEAD --binary -- ${sources} OUTPUT_VARIABLE text ERROR_QUIET)
    execute_process(COMMAND git -C "${SOURCE}" ls-files --others --exclude-standard -- ${sources} OUTPUT_VARIABLE untracked
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    string(REPLACE "\n" ";" untracked "${untracked}")
    foreach(file IN LISTS untracked)
      file(SHA256 "${SOURCE}/${file}" digest)
      string(APPEND text "${file} ${digest}\n")
    endforeach()
    string(SHA256 changes "${text}")
    string(SUBSTRING "${changes}" 0 12 changes)
  endif()
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
#include "harness/schema/build_info.h"

namespace attnbench {

const BuildInfo kBuildInfo{"@VERSION@", "@revision@", @dirty@, "@changes@", "@BUILD@", "@COMPILER@", "@FLAGS@"};

}  // namespace attnbench
]])
