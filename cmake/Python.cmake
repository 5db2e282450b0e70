# Finds the headers and the library of the Python whose torch wheel is LibTorch (ATTNBENCH_PYTHON). With them the target
# attnbench-python builds the worker's module for Python methods, which links libtorch_python.
set(Python3_EXECUTABLE "${ATTNBENCH_PYTHON}")
# With the interpreter as a component, headers and library are those of this Python, and not of another one of the same version: a
# standard library finds its compiled modules only in the Python that it belongs to.
find_package(Python3 COMPONENTS Interpreter Development.Embed QUIET)
set(no_python_methods "")  # why there is no such module; the worker reads it from the file python-methods
if(Python3_Development.Embed_FOUND AND EXISTS "${TORCH_ROOT}/lib/libtorch_python.so")
  set(ATTNBENCH_PYTHON_METHODS ON)
  attnbench_torch_library(torch_python)
  add_library(LibTorch_python INTERFACE)
  add_library(LibTorch::python ALIAS LibTorch_python)
  target_link_libraries(LibTorch_python INTERFACE torch_torch_python LibTorch::cpu Python3::Python)
  # libtorch_python needs LibTorch's CUDA libraries, which the worker loads, and the linker need not see.
  target_link_options(LibTorch_python INTERFACE "LINKER:--allow-shlib-undefined")
else()
  set(ATTNBENCH_PYTHON_METHODS OFF)
  if(Python3_Development.Embed_FOUND)
    set(no_python_methods "torch ${TORCH_VERSION} of ${ATTNBENCH_PYTHON} has no libtorch_python.so")
  else()
    string(CONCAT no_python_methods "the headers of Python (Debian: python3-dev) were missing when this build was configured; install "
                                    "them, run `cmake --preset release`, and then `make python`")
  endif()
  message(STATUS "attnbench: methods in Python will not run: ${no_python_methods}")
endif()
file(WRITE "${PROJECT_BINARY_DIR}/python-methods" "${no_python_methods}")
