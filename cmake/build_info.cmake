# Runs in every build: writes build_info.h with the git revision, but only if its contents have changed. Only files that the programs
# are built from count, so that results, figures and pages may be committed between two measurements of one build.
set(sources CMakeLists.txt cmake attn baselines experiments harness python ":(exclude)experiments/published"
            ":(exclude)experiments/parts.toml" ":(exclude)experiments/reproduce")
execute_process(COMMAND git -C "${SOURCE}" log -1 --abbrev=12 --format=%h -- ${sources} OUTPUT_VARIABLE revision
                RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(dirty false)
if(failed OR NOT revision)
  set(revision "unknown")
else()
  execute_process(COMMAND git -C "${SOURCE}" status --porcelain -- ${sources} OUTPUT_VARIABLE changes
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(changes)
    set(dirty true)
  endif()
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
#pragma once
#define ATTNBENCH_VERSION "@VERSION@"
#define ATTNBENCH_REVISION "@revision@"
#define ATTNBENCH_DIRTY @dirty@
#define ATTNBENCH_BUILD "@BUILD@"
#define ATTNBENCH_COMPILER "@COMPILER@"
#define ATTNBENCH_COMPILER_FLAGS "@FLAGS@"
]])
