# The public headers: those that programs and plug-ins outside this project include, and that an installation has. Writes
# attn_interface.h, whose ATTN_INTERFACE_VERSION is attnbench's version and a digest of these headers. A plug-in that was compiled
# with other headers is refused, so the digest has to change with every declaration; comments and white space do not count.
file(GLOB ATTN_PUBLIC_HEADERS CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/attn/*.h")
list(APPEND ATTN_PUBLIC_HEADERS attn/linear/feature_map.h attn/linear/feature_map_kind.h attn/linear/linear_attention.h
     attn/linear/update.h attn/lsh/hash.h attn/lsh/lsh_attention.h attn/recurrent/recurrent_attention.h)
set(interface_text "")
foreach(header IN LISTS ATTN_PUBLIC_HEADERS)
  file(READ "${PROJECT_SOURCE_DIR}/${header}" text)
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  string(REGEX REPLACE "[ \t\n]+" " " text "${text}")
  string(APPEND interface_text "${header}${text}")
  set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${header}")
endforeach()
string(SHA256 interface_digest "${interface_text}")
string(SUBSTRING "${interface_digest}" 0 12 interface_digest)
set(ATTN_INTERFACE_VERSION "${PROJECT_VERSION}-${interface_digest}")
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/attn_interface.h" @ONLY CONTENT [[
// The version of the headers in attn/ that programs and plug-ins outside attnbench include. CMake writes this file.
#pragma once

#define ATTN_INTERFACE_VERSION "@ATTN_INTERFACE_VERSION@"
]])
