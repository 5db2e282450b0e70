// The methods that the worker has, as data. Read from the file that the build leaves beside it, so that listing them starts
// no worker.
#pragma once

#include <string>
#include <vector>

#include "harness/process/worker_process.h"
#include "harness/schema/case.h"

namespace attnbench {

class Catalogue {
 public:
  // From methods.json beside the worker when that is newer than what it describes, otherwise from the worker itself.
  static Catalogue load(const WorkerProgram& worker);

  const Json& methods() const { return methods_; }
  std::vector<std::string> names() const;
  // The diagnostics that methods declare, each once: [{"name", "unit", "description", "methods": [the methods that report it]},
  // …].
  Json diagnostics() const;

  // Throws UsageError for a method or option that does not exist, with the nearest that does. `spec` as "linear:chunk=256".
  void check(const std::string& spec) const;

 private:
  Json methods_;
};

}  // namespace attnbench
