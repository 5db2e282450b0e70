// Runs a program as a child process in a process group of its own: starts it, writes its input, reads its outputs, and ends it
// together with every process of the group. If this program is killed, the child is ended too.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/process/pipe.h"

namespace attnbench {

// One pipe from the child: the child's descriptors that write to it, and the function that receives what they write.
struct ChildOutput {
  std::vector<int> descriptors;
  // Called with each piece of output as it arrives. It returns false if the child has written too much, and the child is then
  // ended. It must stay callable as long as the ChildProcess exists.
  std::function<bool(std::string_view)> receive;
};

// A process that leads a process group, while it runs and until it is reaped.
class GroupLeader {
 public:
  virtual ~GroupLeader() = default;
  // The number of the process and of its group. No other group gets it before reap() has returned.
  virtual pid_t id() const = 0;
  virtual bool has_ended() = 0;
  // Waits for the end of the process. Returns its status as waitpid() does.
  virtual int reap() = 0;
};

// The ends of the pipes that a child gets: its standard input, and an end for each of ChildCommand::outputs.
struct ChildStreams {
  int input;
  std::vector<int> outputs;
};

struct ChildCommand {
  std::vector<std::string> words;  // the program, which is looked up in PATH, and its arguments
  std::string input = {};          // written to the child's standard input, which is then closed
  std::vector<ChildOutput> outputs = {};
  std::vector<int> inherited = {};  // descriptors of this process that the child has under the same numbers
  // A group that has to be ended gets SIGTERM, and SIGKILL this many seconds later, for programs that finish something on
  // SIGTERM. With 0 it gets SIGKILL at once.
  double grace_s = 0;
  // For a program that has children of its own and reads no standard input: if this program is killed, the child's whole group
  // gets SIGTERM. Otherwise only the child itself gets SIGKILL.
  bool ends_as_group = false;
  // Starts the child in another way than as a program. If it returns null, the program is started.
  std::function<std::unique_ptr<GroupLeader>(const ChildStreams&)> start = {};
};

// How a child ended.
enum class ChildEnd {
  exited,     // by itself
  signalled,  // by a signal that came from elsewhere or from a crash
  deadline,   // killed, because its deadline had passed
  flooded,    // killed, because it had written too much
};

struct ChildResult {
  ChildEnd end = ChildEnd::exited;
  int code = 0;       // the exit status or, if it was signalled, the number of the signal
  double wall_s = 0;  // from the start of the child to its end
};

class ChildProcess {
 public:
  // Starts the program; the thread that calls this must live as long as the child. Throws UsageError if it cannot be started, and
  // Interrupted if SIGINT or SIGTERM has arrived.
  explicit ChildProcess(ChildCommand command);
  // Ends the whole process group if finish() has not done so.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Waits until the child ends, writes too much, or has run for `deadline_s` seconds; then ends whatever is left of its process
  // group. Throws Interrupted if SIGINT or SIGTERM arrives meanwhile.
  ChildResult finish(double deadline_s);

 private:
  double elapsed_s() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  bool outputs_are_open() const;
  bool transfer(double timeout_s);
  void drain();
  void end_group();

  ChildCommand command_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Pipe input_;
  std::vector<Pipe> outputs_;
  size_t sent_ = 0;                      // bytes of the input that were written
  bool flooded_ = false;                 // whether a `receive` returned false
  std::unique_ptr<GroupLeader> leader_;  // the child; null before it starts and after it was reaped
  int status_ = 0;                       // the status that waitpid returned
};

}  // namespace attnbench
