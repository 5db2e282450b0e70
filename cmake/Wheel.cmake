# A wheel of the Python package holds python/attnbench and, with the folder of the package as the prefix, the components `programs`,
# `library` and `development` of Install.cmake and the component `wheel`, which a full installation leaves out. pyproject.toml names them.
add_custom_target(wheel DEPENDS attnbench attnbench-worker attnbench-experiments attn)
foreach(module IN ITEMS attnbench-gpu attnbench-python attn-cuda)
  if(TARGET ${module})
    add_dependencies(wheel ${module})
  endif()
endforeach()

# The Python package reads this file before it loads libattn.
set(build_facts "${PROJECT_BINARY_DIR}/build_facts.json")
file(CONFIGURE OUTPUT "${build_facts}" @ONLY
     CONTENT "{\"version\": \"@PROJECT_VERSION@\", \"torch_version\": \"@TORCH_VERSION@\"}\n")
install(FILES "${build_facts}" DESTINATION "${data_folder}" COMPONENT wheel EXCLUDE_FROM_ALL)
