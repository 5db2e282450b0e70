# Finds the headers and the library of the Python whose torch wheel is LibTorch (ATTNBENCH_PYTHON). With them the worker's module
# for Python methods is built, which links libtorch_python.
set(Python3_EXECUTABLE "${ATTNBENCH_PYTHON}")
find_package(Python3 COMPONENTS Development.Embed QUIET)
if(Python3_Development.Embed_FOUND AND EXISTS "${TORCH_ROOT}/lib/libtorch_python.so")
  set(ATTNBENCH_PYTHON_METHODS ON)
  attnbench_torch_library(torch_python)
  add_library(LibTorch_python INTERFACE)
  add_library(LibTorch::python ALIAS LibTorch_python)
  target_link_libraries(LibTorch_python INTERFACE torch_torch_python LibTorch::cpu Python3::Python)
  # libtorch_python needs LibTorch's CUDA libraries, which Python loads, and the linker need not see.
  target_link_options(LibTorch_python INTERFACE "LINKER:--allow-shlib-undefined")
else()
  set(ATTNBENCH_PYTHON_METHODS OFF)
  message(STATUS "attnbench: no headers of Python (Debian: python3-dev), so methods in Python will not run")
  add_custom_target(attnbench-python
    COMMAND "${CMAKE_COMMAND}" -E echo "attnbench: the headers of Python (Debian: python3-dev) were missing when this build was configured, so methods in Python will not run; install them, run `cmake --preset release`, and then `make python`"
    COMMAND "${CMAKE_COMMAND}" -E false VERBATIM)
endif()
