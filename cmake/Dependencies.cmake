# Finds the libraries that the distribution has installed. Fetches pinned releases of the others when CMake configures the build.
include(FetchContent)
set(BUILD_SHARED_LIBS OFF)
set(JSON_BuildTests OFF)
set(BENCHMARK_ENABLE_TESTING OFF)
set(BENCHMARK_ENABLE_INSTALL OFF)
set(INSTALL_GTEST OFF)

# Finds `package`, which must define `target`. Otherwise fetches `tag` from the GitHub repository `repository`.
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
# A wheel may be installed where fmt's shared library is missing, so its programs contain what they use of fmt.
if(SKBUILD)
  add_library(attnbench_fmt ALIAS fmt::fmt-header-only)
else()
  add_library(attnbench_fmt ALIAS fmt::fmt)
endif()
attnbench_dependency(CLI11 CLI11::CLI11 CLIUtils/CLI11 v2.3.2)
attnbench_dependency(tomlplusplus tomlplusplus::tomlplusplus marzer/tomlplusplus v3.4.0)
# Only the headers of toml++ are used: the distribution's compiled library has assertions, which a user's file could make abort
# the program.
add_library(tomlplusplus_headers INTERFACE)
target_include_directories(tomlplusplus_headers SYSTEM INTERFACE
  $<TARGET_PROPERTY:tomlplusplus::tomlplusplus,INTERFACE_INCLUDE_DIRECTORIES>)
attnbench_dependency(nlohmann_json nlohmann_json::nlohmann_json nlohmann/json v3.11.3)
find_path(RAPIDJSON_INCLUDE rapidjson/reader.h)
if(NOT RAPIDJSON_INCLUDE)
  # Only its headers are used. SOURCE_SUBDIR names a folder without a CMakeLists.txt, so that nothing of it is built.
  FetchContent_Declare(rapidjson GIT_REPOSITORY https://github.com/Tencent/rapidjson.git
    GIT_TAG ab1842a2dae061284c0a62dca1cc6d5e7e37e346 SOURCE_SUBDIR include)
  FetchContent_MakeAvailable(rapidjson)
  set(RAPIDJSON_INCLUDE ${rapidjson_SOURCE_DIR}/include)
endif()
add_library(rapidjson_headers INTERFACE)
target_include_directories(rapidjson_headers SYSTEM INTERFACE ${RAPIDJSON_INCLUDE})
attnbench_dependency(benchmark benchmark::benchmark google/benchmark v1.8.3)
if(ATTNBENCH_TESTS)
  attnbench_dependency(GTest GTest::gtest google/googletest v1.14.0)
endif()
