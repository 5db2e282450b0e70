# Warnings are errors in our own code; what we include from others is SYSTEM.
add_library(attnbench_warnings INTERFACE)
target_compile_options(attnbench_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual;-Werror>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Werror;--Werror=all-warnings>)
# g++ 12 sees overflows in std::string's own operator+ that cannot happen (GCC bug 105329).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(attnbench_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow;-Wno-restrict>)
endif()
