// Finds mistakes in the files of Python methods within a fraction of a second, before a worker imports the files and torch, which
// takes seconds.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/process/worker_process.h"
#include "harness/schema/case.h"

namespace attnbench {

// The messages about the Python methods of these cases whose source alone shows a mistake, such as a wrong signature, by the
// names of the methods. They are the messages with which a worker would refuse the methods. A method without a message can still
// have a mistake. Where the interpreter of the worker cannot be started, no method has a message, and the worker says what is
// wrong. Throws Interrupted on SIGINT or SIGTERM.
std::map<std::string, std::string> mistakes_in_python_files(const WorkerProgram& worker, const std::vector<Case>& cases);

// The interpreter in which the worker runs Python methods; empty if that is not known here.
std::string interpreter_of(const WorkerProgram& worker);
// The path of a file of the package attnbench, such as "distributed/case.py"; empty if the worker has no package beside it.
std::string package_file(const WorkerProgram& worker, const std::string& name);

// Whether any of these cases has a Python method.
bool any_python_method(const std::vector<Case>& cases);

}  // namespace attnbench
