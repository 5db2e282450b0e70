// attnbench-worker: reads cases as JSON from standard input and writes records as JSON lines to a file descriptor that the driver
// chooses. When it is started by hand, that is standard output.
#include "harness/worker/commands.h"

int main(int argc, char** argv) { return attnbench::run_worker_command(argc, argv); }
