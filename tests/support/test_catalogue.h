// A catalogue of methods for tests that run no worker. It is read from methods.json, as if a worker had written that file before.
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
