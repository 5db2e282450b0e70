# Warnings are errors in the project's code. Headers of other projects are included as SYSTEM, so they give no warnings.
add_library(attnbench_warnings INTERFACE)
target_compile_options(attnbench_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual;-Werror>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Werror;--Werror=all-warnings>)
# g++ 12 warns of overflows in std::string's operator+ that cannot happen (GCC bug 105329).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(attnbench_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow;-Wno-restrict>)
endif()
