# Lets a wheel take its programs and libraries from the build folder ATTNBENCH_PREBUILT, by the install rules of that folder
# (Install.cmake and Wheel.cmake), so that the tests need not compile everything a second time. The folder is not built or configured
# again.
if(NOT EXISTS "${ATTNBENCH_PREBUILT}/cmake_install.cmake")
  message(FATAL_ERROR "ATTNBENCH_PREBUILT = ${ATTNBENCH_PREBUILT} is no build folder; expected one that CMake has configured")
endif()
add_custom_target(wheel)
foreach(component IN ITEMS programs library development wheel)
  install(CODE "
    execute_process(COMMAND \"${CMAKE_COMMAND}\" --install \"${ATTNBENCH_PREBUILT}\" --component ${component}
                            --prefix \"\${CMAKE_INSTALL_PREFIX}\"
                    COMMAND_ERROR_IS_FATAL ANY)" COMPONENT ${component})
endforeach()
