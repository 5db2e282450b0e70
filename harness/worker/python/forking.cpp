// Starts the interpreter for processes that are forked from this one.
#include <unistd.h>

#include <cerrno>

#include "harness/worker/python/interpreter.h"
#include "harness/worker/python/module.h"

void attnbench_python_start() { const attnbench::Bridge bridge; }

pid_t attnbench_python_fork() {
  const attnbench::Bridge bridge;
  PyOS_BeforeFork();
  const pid_t child = fork();
  const int error = errno;
  if (child == 0) PyOS_AfterFork_Child();
  else PyOS_AfterFork_Parent();
  errno = error;
  return child;
}
