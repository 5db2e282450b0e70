# Runs in every build: writes build_info.h with the git revision, but only if its contents have changed. Only files that the programs
# are built from count, so that results, figures and pages may be committed between two measurements of one build.
set(sources CMakeLists.txt cmake attn baselines experiments harness python ":(exclude)experiments/published"
            ":(exclude)experiments/parts.toml" ":(exclude)experiments/reproduce")
set(revision "unknown")
set(dirty false)
set(why_unknown "")  # in the words of git; `attnbench --version` shows it
# Sets `variable` to what git prints, or `why_unknown` to why it fails.
function(ask_git variable)
  execute_process(COMMAND git -C "${SOURCE}" ${ARGN} -- ${sources} OUTPUT_VARIABLE output ERROR_VARIABLE errors
                  RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed)
    string(REGEX REPLACE "[ \t\r\n]+" " " errors "${errors}")
    string(STRIP "${errors}" errors)
    if(NOT errors)
      set(errors "git ended with: ${failed}")
    endif()
    set(why_unknown "${errors}" PARENT_SCOPE)
  endif()
  set(${variable} "${output}" PARENT_SCOPE)
endfunction()
ask_git(commit log -1 --abbrev=12 --format=%h)
if(NOT why_unknown AND NOT commit)
  set(why_unknown "git has no commit of these sources")
endif()
if(NOT why_unknown)
  ask_git(changes status --porcelain)
endif()
if(NOT why_unknown)
  set(revision "${commit}")
  if(changes)
    set(dirty true)
  endif()
endif()
# As the characters of a string in C++.
string(REPLACE "\\" "\\\\" why_unknown "${why_unknown}")
string(REPLACE "\"" "\\\"" why_unknown "${why_unknown}")
file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
#pragma once
#define ATTNBENCH_VERSION "@VERSION@"
#define ATTNBENCH_REVISION "@revision@"
#define ATTNBENCH_WHY_REVISION_UNKNOWN "@why_unknown@"
#define ATTNBENCH_DIRTY @dirty@
#define ATTNBENCH_BUILD "@BUILD@"
#define ATTNBENCH_COMPILER "@COMPILER@"
#define ATTNBENCH_COMPILER_FLAGS "@FLAGS@"
]])
