# Makes the LibTorch of the PyPI wheel in .venv (requirements.txt pins its version) available as the target `LibTorch::cpu` and,
# in a CUDA build, `LibTorch::cuda`. The wheel's own find_package(Torch) is not used, because it fails without a CUDA toolkit.
# With this file, both builds link LibTorch in the same way, and programs for the CPU never load libtorch_cuda.
if(SKBUILD)  # A wheel is built for the torch of the Python that builds it.
  set(default_python "${Python_EXECUTABLE}")
else()
  set(default_python "${PROJECT_SOURCE_DIR}/.venv/bin/python")
endif()
set(ATTNBENCH_PYTHON "${default_python}" CACHE FILEPATH "Python whose torch wheel is LibTorch")
if(NOT EXISTS "${ATTNBENCH_PYTHON}")
  message(FATAL_ERROR "no Python at ${ATTNBENCH_PYTHON}; run `make setup`, or pass -DATTNBENCH_PYTHON=…")
endif()
# This finds torch without importing it, since the import would load all CUDA libraries.
execute_process(
  COMMAND "${ATTNBENCH_PYTHON}" -c
          "import importlib.util as u, importlib.metadata as m, os; print(os.path.dirname(u.find_spec('torch').origin)); print(m.version('torch'))"
  OUTPUT_VARIABLE torch_facts RESULT_VARIABLE torch_missing OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(torch_missing)
  message(FATAL_ERROR "${ATTNBENCH_PYTHON} has no torch; run `make setup`")
endif()
string(REPLACE "\n" ";" torch_facts "${torch_facts}")
list(GET torch_facts 0 TORCH_ROOT)
list(GET torch_facts 1 TORCH_VERSION)

function(attnbench_torch_library name)
  set(path "${TORCH_ROOT}/lib/lib${name}.so")
  if(NOT EXISTS "${path}")
    message(FATAL_ERROR "${path} is missing from torch ${TORCH_VERSION}")
  endif()
  add_library(torch_${name} SHARED IMPORTED)
  set_target_properties(torch_${name} PROPERTIES IMPORTED_LOCATION "${path}" IMPORTED_NO_SONAME FALSE)
endfunction()

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

if(CMAKE_CUDA_COMPILER)
  attnbench_torch_library(c10_cuda)
  attnbench_torch_library(torch_cuda)
  add_library(LibTorch_cuda INTERFACE)
  add_library(LibTorch::cuda ALIAS LibTorch_cuda)
  # The library is linked even if no symbol of it is used, because loading it registers ATen's CUDA operators.
  target_link_options(LibTorch_cuda INTERFACE "LINKER:--no-as-needed")
  target_link_libraries(LibTorch_cuda INTERFACE LibTorch::cpu torch_torch_cuda torch_c10_cuda CUDA::cudart)
endif()
