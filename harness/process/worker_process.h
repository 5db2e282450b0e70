// One worker process: started in a process group of its own, spoken to in JSON, ended at its deadline.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/case.h"

namespace attnbench {

struct WorkerAnswer {
  enum class End { exited, signalled, deadline, flooded };  // flooded: killed, its answer had no end
  End end = End::exited;
  int code = 0;             // exit status, or the signal's number
  std::vector<Json> lines;  // complete answers
  std::string unreadable;   // first line that was not JSON, if any
  std::string diagnostics;  // the end of what it wrote to standard output and error
  double wall_s = 0;
};

// The worker of some build, and how it is started. main makes one of the command line and hands it down.
struct WorkerProgram {
  std::string path;
  // Words that stand before the path when the worker is started, such as a profiler and its options.
  std::vector<std::string> launcher = {};

  bool operator==(const WorkerProgram&) const = default;
};
// attnbench-worker in the folder of the running program.
WorkerProgram worker_beside_this_program();

// Runs `worker command` with `request` on its standard input until it ends or `deadline_s` passes; then its whole process
// group is killed and reaped. Throws UsageError when it cannot be started and Interrupted on SIGINT or SIGTERM.
WorkerAnswer run_worker(const WorkerProgram& worker, const std::string& command, const Json& request, double deadline_s);

// A worker of some build, and what it is asked for.
struct WorkerRequest {
  WorkerProgram worker;
  Json request;
};
// One `measure` of each side by side, their samples taken in turns (harness/worker/turns.h) in this order; on `processor`, if
// that is not negative. Answers in order. Throws as run_worker does.
std::vector<WorkerAnswer> run_in_turns(const std::vector<WorkerRequest>& requests, int processor, double deadline_s);

// For commands whose answers must all arrive: throws UsageError with the worker's diagnostics otherwise.
std::vector<Json> ask_worker(const WorkerProgram& worker, const std::string& command, const Json& request, size_t answers);

// From here on SIGINT and SIGTERM end the running worker and make run_worker throw.
void catch_interrupts();

}  // namespace attnbench
