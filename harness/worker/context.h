// What a worker was started with that cases depend on.
#pragma once

#include <string>
#include <vector>

namespace attnbench {

struct WorkerContext {
  // The folders in which Python files and files of inputs with relative paths are looked for, in this order. Without any, it is
  // the current folder.
  std::vector<std::string> folders = {};
};

}  // namespace attnbench
