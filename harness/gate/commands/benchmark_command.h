// A user's command that runs benchmarks and writes their results in a format of harness/foreign/measures.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/foreign/foreign_run.h"

namespace attnbench {

struct BenchmarkCommand {
  // A shell command. Its results are what it writes to standard output or, if it contains the placeholder {out}, to the file
  // whose path replaces {out}.
  std::string text;
  std::string measure;       // for read_foreign_run()
  double deadline_s = 3600;  // after so many seconds it is ended, with all that it has started
};

// Runs the command once, started by the words of `launcher` and with `variables` ("NAME=VALUE") in its environment, and returns
// its results. `side` is named in messages. A file {out} is in `folder`, and is removed afterwards. Throws WorkerError for a
// command that fails, is ended at its deadline, or writes no results; the message names the command and the side, and has the end
// of the command's output. Throws Interrupted on SIGINT or SIGTERM.
ForeignRun run_benchmark_command(const BenchmarkCommand& command, const std::string& side,
                                 const std::vector<std::string>& launcher, const std::vector<std::string>& variables,
                                 const std::filesystem::path& folder);

}  // namespace attnbench
