// A worker process: it is given a request as JSON, answers in lines of JSON, and is ended at its deadline.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/process/child_process.h"
#include "harness/schema/case.h"
#include "harness/text/errors.h"

namespace attnbench {

// The worker of some build, and how it is started. main makes one from the command line and hands it down.
struct WorkerProgram {
  std::string path;
  // Words that stand before the path when the worker is started, such as a profiler and its options.
  std::vector<std::string> launcher = {};

  bool operator==(const WorkerProgram&) const = default;
};
// attnbench-worker in the folder of the running program.
WorkerProgram worker_beside_this_program();

struct WorkerAnswer {
  using End = ChildEnd;
  End end = End::exited;
  int code = 0;                  // exit status, or the number of the signal
  std::vector<Json> lines = {};  // the answers that it completed
  std::string unreadable = {};   // the beginning of the first line that is not JSON or has no end; empty if there is none
  std::string diagnostics = {};  // the end of what it wrote to standard output and standard error
  double wall_s = 0;             // from its start to its end
  double deadline_s = 0;         // the wall time that it was given
};

// Is given each answer as it arrives.
using OnLine = std::function<void(const Json& line)>;

// Runs `worker command` with `request` on its standard input until it ends or `deadline_s` passes; then its whole process
// group is killed and reaped. Throws UsageError when it cannot be started, and Interrupted on SIGINT or SIGTERM.
WorkerAnswer run_worker(const WorkerProgram& worker, const std::string& command, const Json& request, double deadline_s,
                        OnLine on_line = {});

// What is wrong with an answer that should have come to exactly so many lines from a worker that ended well, and what the worker
// wrote besides; empty if nothing is wrong.
std::string fault_of(const WorkerAnswer& answer, size_t answers);

// Like run_worker, for commands whose answers must all arrive: one for each case, if the request is a list of cases. Throws
// WorkerError, which names the method that the worker broke on, if it does not end well after exactly `answers` lines.
std::vector<Json> ask_worker(const WorkerProgram& worker, const std::string& command, const Json& request, size_t answers);

// Returns read(), which reads the worker's answer to `command`. Throws WorkerError if the answer lacks something or is of another
// form than expected, for which read() throws Json::exception or std::invalid_argument.
template <typename Read>
auto read_answer(const WorkerProgram& worker, const std::string& command, const Read& read) {
  const auto broken = [&](const char* how) {
    return WorkerError("`" + worker.path + " " + command + "` broke: its answer: " + how);
  };
  try {
    return read();
  } catch (const Json::exception& error) {
    throw broken(error.what());
  } catch (const std::invalid_argument& error) {
    throw broken(error.what());
  }
}

// A worker and what it is asked to measure.
struct WorkerRequest {
  WorkerProgram worker;
  Json request;
};
// Runs one `measure` for each request, all at the same time; the workers take their samples in turns (harness/worker/turns.h), in
// the order of the requests, and on `processor` if that is not negative. Returns the answers in order. Throws as run_worker does.
std::vector<WorkerAnswer> run_in_turns(const std::vector<WorkerRequest>& requests, int processor, double deadline_s);

}  // namespace attnbench
