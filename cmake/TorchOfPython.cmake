# Functions that make the LibTorch of a PyPI wheel available as the target LibTorch::cpu. The build uses them, and an installation
# has this file for the projects that find it. The wheel's own find_package(Torch) is not used, because it fails without a CUDA
# toolkit.

# Defines the target torch_NAME for a library of the wheel.
function(attnbench_torch_library name)
  set(path "${TORCH_ROOT}/lib/lib${name}.so")
  if(NOT EXISTS "${path}")
    message(FATAL_ERROR "${path} is missing from torch ${TORCH_VERSION}")
  endif()
  add_library(torch_${name} SHARED IMPORTED GLOBAL)
  set_target_properties(torch_${name} PROPERTIES IMPORTED_LOCATION "${path}" IMPORTED_NO_SONAME FALSE)
endfunction()

# Sets TORCH_ROOT and TORCH_VERSION to those of this Python's torch, and TORCH_MISSING to empty text or, if it has none, to what is
# wrong.
macro(attnbench_find_torch_of_python python)
  set(TORCH_MISSING "")
  # This finds torch without importing it, since the import would load all CUDA libraries.
  execute_process(
    COMMAND "${python}" -c
            "import importlib.util as u, importlib.metadata as m, os; print(os.path.dirname(u.find_spec('torch').origin)); print(m.version('torch'))"
    OUTPUT_VARIABLE torch_facts RESULT_VARIABLE torch_failure OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(torch_failure)
    set(TORCH_MISSING "${python} has no torch")
  else()
    string(REPLACE "\n" ";" torch_facts "${torch_facts}")
    list(GET torch_facts 0 TORCH_ROOT)
    list(GET torch_facts 1 TORCH_VERSION)
  endif()
endmacro()

# Defines LibTorch::cpu from TORCH_ROOT.
function(attnbench_define_libtorch)
  attnbench_torch_library(c10)
  attnbench_torch_library(torch_cpu)
  add_library(LibTorch_cpu INTERFACE)
  add_library(LibTorch::cpu ALIAS LibTorch_cpu)
  target_include_directories(LibTorch_cpu SYSTEM INTERFACE "${TORCH_ROOT}/include" "${TORCH_ROOT}/include/torch/csrc/api/include")
  target_link_libraries(LibTorch_cpu INTERFACE torch_torch_cpu torch_c10)
  # Even on a CPU, the CUDA wheel's libtorch_cpu loads libraries of the CUDA runtime, which are in folders beside the wheel's.
  file(GLOB torch_nvidia_folders "${TORCH_ROOT}/../nvidia/*/lib" "${TORCH_ROOT}/../nvidia/cu*/lib")
  list(REMOVE_DUPLICATES torch_nvidia_folders)
  foreach(folder IN LISTS torch_nvidia_folders)
    target_link_options(LibTorch_cpu INTERFACE "LINKER:-rpath-link,${folder}")
  endforeach()
  # at::parallel_for is a template that runs serially unless the code that calls it is compiled with OpenMP. The code must use the
  # OpenMP runtime of LibTorch, since a second runtime would have a second pool of threads.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # -fopenmp of clang would call another runtime
    target_compile_options(LibTorch_cpu INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
  endif()
  file(GLOB torch_openmp "${TORCH_ROOT}/lib/libgomp*.so*")
  if(torch_openmp)
    target_link_libraries(LibTorch_cpu INTERFACE "${torch_openmp}")
  else()
    target_link_options(LibTorch_cpu INTERFACE -fopenmp)
  endif()
endfunction()
