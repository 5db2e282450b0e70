# What `cmake --install` installs, in the folders that GNUInstallDirs names. The prefix can be moved afterwards: programs and
# libraries find each other and their files from their own places.
#   programs     attnbench in bin; the programs that it starts, and methods.json, in libexec/attnbench; sweeps, settings, published
#                values, rivals, and the scripts of the figures in share/attnbench
#   library      libattn
#   development  the public headers, and the package that find_package(attnbench) finds
# Installed libraries and programs look for the libraries of LibTorch here, one folder after the other. A relative path is taken
# from the prefix: the Python package is beside torch in one folder. LD_LIBRARY_PATH can name another folder with the same version
# when a program starts.
set(ATTNBENCH_TORCH_RPATH "../torch/lib;${TORCH_ROOT}/lib" CACHE STRING
    "Folders in which an installation looks for LibTorch's libraries; a relative path is taken from the prefix")
include(CMakePackageConfigHelpers)
set(internal_folder "${CMAKE_INSTALL_LIBEXECDIR}/attnbench")
set(data_folder "${CMAKE_INSTALL_DATADIR}/attnbench")
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/attnbench")

# Lets a target that is installed in this folder find libattn and LibTorch.
function(set_install_rpath target folder)
  set(prefix "/prefix")  # stands for any
  file(RELATIVE_PATH to_library "${prefix}/${folder}" "${prefix}/${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH to_prefix "${prefix}/${folder}" "${prefix}")
  set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH "$ORIGIN/${to_library}")
  foreach(torch_folder IN LISTS ATTNBENCH_TORCH_RPATH)
    if(NOT IS_ABSOLUTE "${torch_folder}")
      string(PREPEND torch_folder "$ORIGIN/${to_prefix}/")
    endif()
    set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH "${torch_folder}")
  endforeach()
endfunction()

# ---------------------------------------------------------------- programs
# A bundle for GPU nodes has the system libraries that the driver needs beside libattn (tools/gpu_bundle.py).
file(RELATIVE_PATH bin_to_library "/prefix/${CMAKE_INSTALL_BINDIR}" "/prefix/${CMAKE_INSTALL_LIBDIR}")
set_property(TARGET attnbench PROPERTY INSTALL_RPATH "$ORIGIN/${bin_to_library}")
install(TARGETS attnbench RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT programs)
foreach(program IN ITEMS attnbench-worker attnbench-experiments)
  set_install_rpath(${program} "${internal_folder}")
  install(TARGETS ${program} RUNTIME DESTINATION "${internal_folder}" COMPONENT programs)
endforeach()
# The modules that the worker loads for some cases are beside it.
foreach(module IN ITEMS attnbench-gpu attnbench-python)
  if(TARGET ${module})
    set_install_rpath(${module} "${internal_folder}")
    install(TARGETS ${module} LIBRARY DESTINATION "${internal_folder}" COMPONENT programs)
  endif()
endforeach()
if(TARGET attnbench-python AND NOT SKBUILD)  # pip installs a wheel's torch with all of its libraries
  install(DIRECTORY "${PROJECT_BINARY_DIR}/cuda-stand-ins" DESTINATION "${internal_folder}" COMPONENT programs
          FILES_MATCHING PATTERN "*.so.*" PATTERN sources EXCLUDE)
endif()
install(FILES "${PROJECT_BINARY_DIR}/methods.json" DESTINATION "${internal_folder}" COMPONENT programs)
install(DIRECTORY sweeps plots rivals DESTINATION "${data_folder}" COMPONENT programs PATTERN __pycache__ EXCLUDE)
install(DIRECTORY experiments/settings experiments/speed experiments/published DESTINATION "${data_folder}/experiments"
        COMPONENT programs)
install(FILES LICENSE CITATION.cff DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT programs)

# ---------------------------------------------------------------- library
set_install_rpath(attn "${CMAKE_INSTALL_LIBDIR}")
install(TARGETS attn EXPORT attnbenchTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library)
if(TARGET attn-cuda)
  set_install_rpath(attn-cuda "${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS attn-cuda LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT library)
endif()

# ---------------------------------------------------------------- development
foreach(header IN LISTS ATTN_PUBLIC_HEADERS)
  get_filename_component(folder "${header}" DIRECTORY)
  install(FILES "${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/attnbench/${folder}" COMPONENT development)
endforeach()
install(FILES "${PROJECT_BINARY_DIR}/generated/attn_interface.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/attnbench"
        COMPONENT development)
install(EXPORT attnbenchTargets NAMESPACE attnbench:: DESTINATION "${package_folder}" COMPONENT development)
configure_package_config_file(cmake/attnbenchConfig.cmake.in "${PROJECT_BINARY_DIR}/generated/attnbenchConfig.cmake"
                              INSTALL_DESTINATION "${package_folder}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/generated/attnbenchConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/generated/attnbenchConfig.cmake" "${PROJECT_BINARY_DIR}/generated/attnbenchConfigVersion.cmake"
              cmake/TorchOfPython.cmake
        DESTINATION "${package_folder}" COMPONENT development)
