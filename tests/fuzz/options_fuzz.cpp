// Fuzzes the parsing of a method and its options. For any text, make_method() must return a method or throw a c10::ValueError.
#include <c10/util/Exception.h>

#include <string>

#include "attn/registry.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    attn::make_method(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const c10::ValueError&) {
  }
  return 0;
}
