# Runs in every build: writes build_info.h with the git revision, but only if its contents have changed.
execute_process(COMMAND git -C "${SOURCE}" rev-parse --short=12 HEAD OUTPUT_VARIABLE revision RESULT_VARIABLE failed
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(dirty false)
if(failed)
  set(revision "unknown")
else()
  # Only changes of files that the programs are built from count; results and figures, for example, may change freely.
  execute_process(COMMAND git -C "${SOURCE}" status --porcelain -- CMakeLists.txt cmake attn baselines experiments harness
                          python
                  OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
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
