// The macro that makes a shared library a plug-in of attnbench: a library with methods of its own, which
// `attnbench measure METHOD --plugin libmine.so` loads. It stands once in the library, at file scope:
//
//   #include "attn/plugin.h"
//   #include "attn/registry.h"
//   …                                // the methods, which register themselves as in attn/registry.h
//   ATTNBENCH_PLUGIN;
#pragma once

#include <torch/version.h>

#include "attn_interface.h"

namespace attn {

// What a plug-in was built with: plain text that is padded with zeros, in a section of its own. The worker reads it from the file
// before it loads the library, because loading a library runs its initialisers. Those would call libattn and LibTorch, and do
// damage if the library was compiled for others.
struct PluginStamp {
  char interface_version[64];  // ATTN_INTERFACE_VERSION: attnbench's version, and a digest of the headers that plug-ins include
  char torch_version[64];      // TORCH_VERSION
};

}  // namespace attn

#define ATTNBENCH_PLUGIN_SECTION ".attnbench_plugin"

#define ATTNBENCH_PLUGIN                                                                      \
  extern "C" __attribute__((visibility("default"))) const attn::PluginStamp attnbench_plugin; \
  __attribute__((used, section(ATTNBENCH_PLUGIN_SECTION)))                                    \
  const attn::PluginStamp attnbench_plugin = {ATTN_INTERFACE_VERSION, TORCH_VERSION}
