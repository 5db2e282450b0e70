// The arguments of the worker that cases depend on.
#pragma once

#include <string>
#include <vector>

namespace attnbench {

struct WorkerContext {
  // The folders in which Python files and files of inputs with relative paths are looked for, in this order. If there are none,
  // they are looked for in the current folder.
  std::vector<std::string> folders = {};
};

}  // namespace attnbench
