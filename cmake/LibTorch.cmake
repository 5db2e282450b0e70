# Makes the LibTorch of the PyPI wheel in .venv (requirements.txt pins its version) available as the target `LibTorch::cpu` and,
# in a CUDA build, `LibTorch::cuda`. Both builds link LibTorch in the same way, and programs for the CPU never load libtorch_cuda.
if(SKBUILD)  # A wheel is built for the torch of the Python that builds it.
  set(default_python "${Python_EXECUTABLE}")
else()
  set(default_python "${PROJECT_SOURCE_DIR}/.venv/bin/python")
endif()
set(ATTNBENCH_PYTHON "${default_python}" CACHE FILEPATH "Python whose torch wheel is LibTorch")
if(NOT EXISTS "${ATTNBENCH_PYTHON}")
  message(FATAL_ERROR "no Python at ${ATTNBENCH_PYTHON}; run `make setup`, or pass -DATTNBENCH_PYTHON=…")
endif()
include("${CMAKE_CURRENT_LIST_DIR}/TorchOfPython.cmake")
attnbench_find_torch_of_python("${ATTNBENCH_PYTHON}")
if(TORCH_MISSING)
  message(FATAL_ERROR "${TORCH_MISSING}; run `make setup`")
endif()
# The CUDA version that torch was built with; empty for a build without CUDA.
file(STRINGS "${TORCH_ROOT}/version.py" TORCH_CUDA REGEX "^cuda[^=]*= '")
string(REGEX REPLACE ".*'([^']*)'.*" "\\1" TORCH_CUDA "${TORCH_CUDA}")
attnbench_define_libtorch()

if(CMAKE_CUDA_COMPILER)
  attnbench_torch_library(c10_cuda)
  attnbench_torch_library(torch_cuda)
  add_library(LibTorch_cuda INTERFACE)
  add_library(LibTorch::cuda ALIAS LibTorch_cuda)
  # The library is linked even if no symbol of it is used, because loading it registers ATen's CUDA operators.
  target_link_options(LibTorch_cuda INTERFACE "LINKER:--no-as-needed")
  target_link_libraries(LibTorch_cuda INTERFACE LibTorch::cpu torch_torch_cuda torch_c10_cuda CUDA::cudart)
endif()
