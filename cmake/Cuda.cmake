# Enables the CUDA language if ATTNBENCH_CUDA is ON, and sets ATTNBENCH_BUILD_NAME, which names the build in every record.
set(ATTNBENCH_BUILD_NAME "CPU")
if(ATTNBENCH_CUDA)
  find_program(nvcc nvcc HINTS "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin)
  if(NOT nvcc)
    message(FATAL_ERROR "ATTNBENCH_CUDA=ON but nvcc was not found; put it on PATH or set CUDA_HOME")
  endif()
  set(CMAKE_CUDA_COMPILER "${nvcc}")
  # A plain number stands for machine code and PTX of that architecture. The driver compiles PTX for newer ones.
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 17)
  find_package(CUDAToolkit REQUIRED)
  # These programs are made for other machines, so that messages and debug information have no paths of this one.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>"
                      "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>")
  set(ATTNBENCH_BUILD_NAME "CUDA ${CMAKE_CUDA_COMPILER_VERSION}")
endif()
