// attnbench-worker: takes cases as JSON on standard input and answers with records as JSON lines on a descriptor of their own.
// The driver starts it; started by hand, it answers on standard output.
#include "harness/worker/commands.h"

int main(int argc, char** argv) { return attnbench::run_worker_command(argc, argv); }
