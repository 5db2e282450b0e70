// The command line of attnbench-experiments, which has one subcommand for each request of the driver.
#pragma once

namespace experiments {

// Runs the subcommand that the arguments name and returns the program's exit code: 2 for a request that cannot be read or
// answered, 1 if the driver has ended, 128 + n after signal n, and the code of CLI11 for wrong arguments.
int run_command(int argc, char** argv);

}  // namespace experiments
