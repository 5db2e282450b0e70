// attnbench-experiments: trains models for `attnbench train`. It reads a request as JSON from standard input and answers in lines
// of JSON on a file descriptor that the driver chooses.
#include "experiments/commands.h"

int main(int argc, char** argv) { return experiments::run_command(argc, argv); }
