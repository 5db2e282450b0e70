// Passes the byte around the ring, and keeps workers that share a processor on it.
#include "harness/worker/timing/turns.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string>

#include "harness/worker/cpu/threads.h"

namespace attnbench {
namespace {

void stay_on_processor(int processor) {
  if (!run_on({processor}))
    throw std::runtime_error("cannot stay on processor " + std::to_string(processor) + ": " + std::strerror(errno));
}

}  // namespace

Turns::Turns(int from_previous, int to_next, int processor)
    : from_previous_(from_previous), to_next_(to_next), processor_(processor) {
  std::signal(SIGPIPE, SIG_IGN);  // writing to a worker that has ended must fail and not end this process
}

Turns::~Turns() {
  close(from_previous_);
  close(to_next_);
}

bool Turns::read_byte() {
  char byte = 0;
  ssize_t count = 0;
  do count = read(from_previous_, &byte, 1);
  while (count < 0 && errno == EINTR);
  return count == 1;
}

bool Turns::await() {
  // Before the first turn, the byte passes every worker once, and each passes it on only when it is ready.
  if (!begun_) {
    begun_ = true;
    if (processor_ >= 0) stay_on_processor(processor_);
    if (!read_byte()) ended_ = true;
    else pass();
  }
  if (!ended_ && !read_byte()) ended_ = true;
  return !ended_;
}

void Turns::pass() {
  const char byte = 0;
  ssize_t count = 0;
  do count = write(to_next_, &byte, 1);
  while (count < 0 && errno == EINTR);
  if (count != 1) ended_ = true;
}

}  // namespace attnbench
