// A command of others that runs benchmarks and writes their results in a format of harness/foreign/measures.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/foreign/foreign_run.h"

namespace attnbench {

struct BenchmarkCommand {
  // A shell command. Its results are what it writes to standard output or, where it has the placeholder {out}, to the file that
  // stands in place of {out}.
  std::string text;
  std::string measure;       // for read_foreign_run()
  double deadline_s = 3600;  // after so many seconds it is ended, with all that it has started
};

// One run of the command, started by the words of `launcher` and with `variables` ("NAME=VALUE") in its environment. `side` is
// for messages. A file {out} is in `folder`, where nothing stays. Throws WorkerError that names the command and the side for a
// command that fails, is ended at its deadline, or writes no results, with the end of what it said; and Interrupted.
ForeignRun run_benchmark_command(const BenchmarkCommand& command, const std::string& side,
                                 const std::vector<std::string>& launcher, const std::vector<std::string>& variables,
                                 const std::filesystem::path& folder);

}  // namespace attnbench
