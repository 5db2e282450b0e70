# Libraries of the distribution where it has them, pinned releases fetched at configure time where it lacks them.
include(FetchContent)
set(BUILD_SHARED_LIBS OFF)
set(JSON_BuildTests OFF)
set(BENCHMARK_ENABLE_TESTING OFF)
set(BENCHMARK_ENABLE_INSTALL OFF)
set(INSTALL_GTEST OFF)

# package, the target it must bring, the GitHub repository and the tag to fetch otherwise.
macro(attnbench_dependency package target repository tag)
  find_package(${package} QUIET)
  if(TARGET ${target})
    message(STATUS "${package} ${${package}_VERSION} of the system")
  else()
    message(STATUS "${package} ${tag} fetched from ${repository}")
    FetchContent_Declare(${package} GIT_REPOSITORY https://github.com/${repository}.git GIT_TAG ${tag} GIT_SHALLOW ON SYSTEM)
    FetchContent_MakeAvailable(${package})
  endif()
endmacro()

attnbench_dependency(fmt fmt::fmt fmtlib/fmt 9.1.0)
attnbench_dependency(CLI11 CLI11::CLI11 CLIUtils/CLI11 v2.3.2)
attnbench_dependency(tomlplusplus tomlplusplus::tomlplusplus marzer/tomlplusplus v3.4.0)
# Its headers alone: the distribution's compiled library would bring its own assertions, and a user's file must not abort us.
add_library(tomlplusplus_headers INTERFACE)
target_include_directories(tomlplusplus_headers SYSTEM INTERFACE
  $<TARGET_PROPERTY:tomlplusplus::tomlplusplus,INTERFACE_INCLUDE_DIRECTORIES>)
attnbench_dependency(nlohmann_json nlohmann_json::nlohmann_json nlohmann/json v3.11.3)
attnbench_dependency(benchmark benchmark::benchmark google/benchmark v1.8.3)
if(ATTNBENCH_TESTS)
  attnbench_dependency(GTest GTest::gtest google/googletest v1.14.0)
endif()
