// attnbench-experiments: trains models for `attnbench train`. It reads a request as JSON from standard input and answers in lines
// of JSON on a file descriptor that the driver chooses.
#include <malloc.h>

#include <limits>

#include "experiments/commands.h"

namespace {

// Lets the allocator of glibc keep all memory that is freed. By default it returns large blocks to the system, or not, depending
// on the sizes that were freed before; softmax attention that recomputes a growing prefix then spent up to half of its time in
// page faults, and the time of a token at one position depended on the positions before it.
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  return experiments::run_command(argc, argv);
}
