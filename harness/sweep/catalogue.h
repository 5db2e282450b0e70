// The methods that a worker has, as data. The build writes them to methods.json beside the worker, so that most commands can
// check the name of a method without starting a worker.
#pragma once

#include <string>
#include <vector>

#include "harness/process/worker_process.h"
#include "harness/schema/case.h"

namespace attnbench {

class Catalogue {
 public:
  // Reads methods.json beside the worker if it is not older than the worker and its library, and otherwise asks the worker. A
  // worker with plug-ins is always asked. Throws UsageError if the worker cannot be started or refuses a plug-in, and WorkerError
  // if its answer cannot be read, for example because a plug-in has crashed it.
  static Catalogue load(const WorkerProgram& worker);

  // What `attnbench-worker describe` answers: an array with an object for each method.
  const Json& methods() const { return methods_; }
  std::vector<std::string> names() const;
  // The diagnostics that methods declare, each once: [{"name", "unit", "description", "methods": [the methods that report it]},
  // …].
  Json diagnostics() const;

  // Checks a method with its options, such as "linear-chunked:chunk=256". Throws UsageError for a method or an option that does
  // not exist; the message names the nearest that does. Of a method in Python, "FILE.py:FUNCTION", only the form is checked,
  // because the worker opens its file when it plans the case.
  void check(const std::string& spec) const;

  // Checks the method, and returns it with the option `like=LIKE` added, which names the method that its results are compared
  // with, if it is in Python and has no such option yet.
  std::string with_like(const std::string& spec, const std::string& like) const;

 private:
  Json methods_;
};

}  // namespace attnbench
