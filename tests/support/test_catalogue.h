// A catalogue of methods without a worker behind it.
#pragma once

#include "harness/sweep/catalogue.h"
#include "tests/support/temp_folder.h"

namespace attnbench {

constexpr auto kMethodsJson = R"([
  {"name": "linear", "options": [{"name": "chunk"}]},
  {"name": "lsh-4", "options": [{"name": "buckets"}, {"name": "profile"}]},
  {"name": "sdpa", "options": []},
  {"name": "softmax", "options": []}])";

inline Catalogue test_catalogue() {
  const TempFolder folder;
  const auto worker = folder.write("attnbench-worker", "");
  folder.write("libattn.so", "");
  folder.write("methods.json", kMethodsJson);
  return Catalogue::load({worker});
}

}  // namespace attnbench
