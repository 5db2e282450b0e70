// Runs worker processes. A worker is given a request as JSON, answers in lines of JSON, and is ended at its deadline.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/process/child_process.h"
#include "harness/process/fork_server.h"
#include "harness/schema/case.h"
#include "harness/text/errors.h"

namespace attnbench {

// The worker of a build, and how it is started. main() makes one from its command line and passes it to the command.
struct WorkerProgram {
  std::string path;
  // Words that stand before the path in the worker's command line, such as a profiler and its options.
  std::vector<std::string> launcher = {};
  // The folders in which the files of Python methods are looked for, in this order. If there are none, it is the current folder.
  std::vector<std::string> methods_folders = {};
  // Absolute paths of shared libraries with further methods (attn/plugin.h).
  std::vector<std::string> plugins = {};
  // If not null, workers are forked from this process instead of being started as programs, if it can fork. Records say how each
  // process began.
  std::shared_ptr<ForkServer> server = {};
  bool forks = false;  // whether the user wants workers to be forked, where a method is in Python

  bool operator==(const WorkerProgram&) const = default;
};
// The worker that belongs to the running program (installation.h). It finds the Python files that attnbench ships, such as
// "rivals/fast-transformers.py", unless the current folder has a file of that name.
WorkerProgram worker_beside_this_program();
// The worker with a new server. `takes_turns` says whether workers take their samples in turns (run_in_turns).
WorkerProgram forking(WorkerProgram worker, bool takes_turns);
// The worker with further plug-ins, of which none is taken twice. Throws UsageError for a path at which there is no file.
WorkerProgram with_plugins(WorkerProgram worker, const std::vector<std::string>& paths);

struct WorkerAnswer {
  using End = ChildEnd;
  End end = End::exited;
  int code = 0;                  // the exit status or, if it was signalled, the number of the signal
  std::vector<Json> lines = {};  // the complete lines of its answer
  std::string unreadable = {};   // the beginning of the first line that is not JSON or not complete; empty if there is none
  std::string diagnostics = {};  // the end of what it wrote to standard output and standard error
  double wall_s = 0;             // from its start to its end
  double deadline_s = 0;         // the wall time that it was allowed
  std::string start = {};        // how the process began, as the column process_start says it
};

// Called with each line of an answer as it arrives.
using OnLine = std::function<void(const Json& line)>;

// Runs `worker command` with `request` on its standard input until it ends or has run for `deadline_s` seconds; then kills what
// is left of its process group. `arguments` follow the command. Throws UsageError if the worker cannot be started, and
// Interrupted on SIGINT or SIGTERM. A worker that has to be ended gets SIGTERM first if `grace_s` is above 0, and SIGKILL so many
// seconds later.
WorkerAnswer run_worker(const WorkerProgram& worker, const std::string& command, const Json& request, double deadline_s,
                        OnLine on_line = {}, const std::vector<std::string>& arguments = {}, double grace_s = 0);

// Says what is wrong with an answer, and quotes its unreadable line or what the worker wrote to standard output and standard
// error. Returns empty text if nothing is wrong: the worker ended with exit code 0 after exactly `expected_lines` lines.
std::string fault_of(const WorkerAnswer& answer, size_t expected_lines);

// Runs the worker like run_worker and returns the lines of its answer, one for each case if the request is a list of cases.
// Throws WorkerError if the worker does not end with exit code 0 after exactly `expected_lines` lines; if the request is a list
// of cases, the message names the method of the first case that was not answered.
std::vector<Json> ask_worker(const WorkerProgram& worker, const std::string& command, const Json& request, size_t expected_lines);

// Returns the result of read(), which interprets the worker's answer to `command`. If the answer lacks something or has another
// form than expected, read() throws Json::exception or std::invalid_argument, and this function throws WorkerError.
template <typename Read>
auto read_answer(const WorkerProgram& worker, const std::string& command, const Read& read) {
  const auto broken = [&](const std::string& how) {
    return WorkerError("`" + worker.path + " " + command + "` broke: its answer cannot be read: " + how);
  };
  try {
    return read();
  } catch (const Json::exception& error) {
    throw broken(error_text(error));
  } catch (const std::invalid_argument& error) {
    throw broken(error.what());
  }
}

// A worker and what it is asked to measure.
struct WorkerRequest {
  WorkerProgram worker;
  Json request;
  std::vector<std::string> arguments = {};  // those that follow the command
};
// Runs one worker with the command `measure` for each request, all at the same time. The workers take their samples in turns
// (harness/worker/timing/turns.h), in the order of the requests, and on `processor` if that is not negative. Returns the answers
// in the order of the requests. Throws as run_worker does.
std::vector<WorkerAnswer> run_in_turns(const std::vector<WorkerRequest>& requests, int processor, double deadline_s);

}  // namespace attnbench
