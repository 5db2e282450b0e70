// A program that runs as a child process, in a process group of its own: it is started, given its input, listened to, and ended
// together with everything that it started.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/process/pipe.h"

namespace attnbench {

// What the child writes to some of its descriptors, which share one pipe.
struct ChildOutput {
  std::vector<int> descriptors;
  // Is given each piece as it arrives. If it returns false, the child has written too much and is ended. It must stay callable
  // as long as the ChildProcess exists.
  std::function<bool(std::string_view)> receive;
};

struct ChildCommand {
  std::vector<std::string> words;  // the program, which is looked up in PATH, and its arguments
  std::string input = {};          // is written to its standard input, which is then closed
  std::vector<ChildOutput> outputs = {};
  std::vector<int> inherited = {};  // descriptors that it has under the same number as this process
  // When the child has to be ended before it ends by itself: how long its group has between SIGTERM and SIGKILL, for programs
  // that end their own children on SIGTERM. 0: SIGKILL at once.
  double grace_s = 0;
};

// How a child ended. Deadline and flooded: it was killed, because its deadline passed or because it wrote too much.
enum class ChildEnd { exited, signalled, deadline, flooded };

struct ChildResult {
  ChildEnd end = ChildEnd::exited;
  int code = 0;       // exit status, or the number of the signal
  double wall_s = 0;  // from its start to its end
};

class ChildProcess {
 public:
  // Starts the program. Throws UsageError when it cannot be started, and Interrupted if SIGINT or SIGTERM has arrived.
  explicit ChildProcess(ChildCommand command);
  // Ends the whole process group, if it is still there.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Waits until the child ends or `deadline_s` seconds have passed since its start; afterwards nothing of its process group is
  // left. Throws Interrupted when SIGINT or SIGTERM arrives meanwhile.
  ChildResult finish(double deadline_s);

 private:
  double elapsed_s() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  bool leader_has_ended() const;
  bool outputs_are_open() const;
  bool transfer(double timeout_s);
  void drain();
  void end_group();

  ChildCommand command_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Pipe input_;
  std::vector<Pipe> outputs_;
  size_t sent_ = 0;       // bytes of the input
  bool flooded_ = false;  // an output was refused
  pid_t leader_ = -1;     // -1 before it starts and after it was reaped
  int status_ = 0;        // as waitpid gives it
};

}  // namespace attnbench
