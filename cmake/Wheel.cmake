# Installs what a wheel of the Python package holds besides python/attnbench, as the component `wheel`, which a full installation
# leaves out: programs in bin, libraries in lib, and the project's files in share/attnbench. pyproject.toml makes the folder of the
# package the prefix, so that torch is beside it.
set(wheel_programs attnbench-worker attnbench-experiments)
add_custom_target(wheel DEPENDS attnbench ${wheel_programs} attn)

# The libraries of torch are in site-packages/torch/lib, and those of the package in site-packages/attnbench/lib.
set_property(TARGET ${wheel_programs} attn APPEND PROPERTY INSTALL_RPATH "$ORIGIN/../lib" "$ORIGIN/../../torch/lib")
install(TARGETS attnbench ${wheel_programs} RUNTIME DESTINATION bin COMPONENT wheel EXCLUDE_FROM_ALL)
install(TARGETS attn LIBRARY DESTINATION lib COMPONENT wheel EXCLUDE_FROM_ALL)
# The worker looks for its modules in its own folder.
foreach(module IN ITEMS attnbench-gpu attnbench-python)
  if(TARGET ${module})
    add_dependencies(wheel ${module})
    set_property(TARGET ${module} APPEND PROPERTY INSTALL_RPATH "$ORIGIN/../lib" "$ORIGIN/../../torch/lib")
    install(TARGETS ${module} LIBRARY DESTINATION bin COMPONENT wheel EXCLUDE_FROM_ALL)
  endif()
endforeach()
if(TARGET attn-cuda)
  add_dependencies(wheel attn-cuda)
  set_property(TARGET attn-cuda APPEND PROPERTY INSTALL_RPATH "$ORIGIN/../lib" "$ORIGIN/../../torch/lib")
  install(TARGETS attn-cuda LIBRARY DESTINATION lib COMPONENT wheel EXCLUDE_FROM_ALL)
endif()

install(DIRECTORY sweeps plots DESTINATION share/attnbench COMPONENT wheel EXCLUDE_FROM_ALL PATTERN __pycache__ EXCLUDE)
install(DIRECTORY experiments/settings experiments/speed experiments/published DESTINATION share/attnbench/experiments
        COMPONENT wheel EXCLUDE_FROM_ALL)

# The Python package reads this file before it loads libattn.
set(build_facts "${PROJECT_BINARY_DIR}/build_facts.json")
file(CONFIGURE OUTPUT "${build_facts}" @ONLY
     CONTENT "{\"version\": \"@PROJECT_VERSION@\", \"torch_version\": \"@TORCH_VERSION@\"}\n")
install(FILES "${build_facts}" DESTINATION share/attnbench COMPONENT wheel EXCLUDE_FROM_ALL)
