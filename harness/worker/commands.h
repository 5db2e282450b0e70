// The worker's command line: one command for each thing that the driver asks of it.
#pragma once

namespace attnbench {

// Runs the command that the arguments name, and returns the program's exit code.
int run_worker_command(int argc, char** argv);

}  // namespace attnbench
