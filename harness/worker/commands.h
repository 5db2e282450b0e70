// The worker's command line, which has one subcommand for each request of the driver.
#pragma once

namespace attnbench {

// Runs the subcommand that the arguments name and returns the program's exit code: 2 for a request that cannot be read or
// answered, 1 if the driver has ended, and the code of CLI11 for wrong arguments.
int run_worker_command(int argc, char** argv);

}  // namespace attnbench
