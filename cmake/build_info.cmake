# Runs in every build: writes build_info.cpp with the git revision, but only if its contents have changed. Only files that the programs
# are built from count, so that results, figures and pages may be committed between two measurements of one build.
set(sources CMakeLists.txt cmake attn baselines experiments harness python ":(exclude)experiments/published"
            ":(exclude)experiments/parts.toml" ":(exclude)experiments/reproduce")
set(revision "unknown")
set(dirty false)
set(changes "")
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
  ask_git(status status --porcelain)
endif()
if(NOT why_unknown)
  set(revision "${commit}")
  if(status)
    set(dirty true)
    # The digest covers the differences of the files that git knows, and the contents of those that it does not know.
    ask_git(text diff HEAD --binary)
    ask_git(untracked ls-files --others --exclude-standard)
    string(REPLACE "\n" ";" untracked "${untracked}")
    foreach(file IN LISTS untracked)
      file(SHA256 "${SOURCE}/${file}" digest)
      string(APPEND text "${file} ${digest}\n")
    endforeach()
    string(SHA256 changes "${text}")
    string(SUBSTRING "${changes}" 0 12 changes)
  endif()
endif()
# As the characters of a string in C++.
string(REPLACE "\\" "\\\\" why_unknown "${why_unknown}")
string(REPLACE "\"" "\\\"" why_unknown "${why_unknown}")
file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
#include "harness/schema/build_info.h"

namespace attnbench {

const BuildInfo kBuildInfo{"@VERSION@", "@revision@", "@why_unknown@", @dirty@, "@changes@", "@BUILD@", "@COMPILER@", "@FLAGS@"};

}  // namespace attnbench
]])
