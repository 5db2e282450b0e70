// Forks, execs and polls the child, and kills its whole process group at the end.
#include "harness/process/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "harness/process/interrupts.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

// How often this program checks whether the child has ended and whether a signal has arrived.
constexpr double kPollS = 0.1;
// The shorter interval once the child has closed all its outputs, after which it usually ends within microseconds.
constexpr double kPollSilentS = 0.001;
// How long the rest of the outputs is read after the group has ended. Only a process that left the group can still write then.
constexpr double kDrainS = 0.2;

// Makes the descriptor `from` available as `to` in the program that is started.
bool place_descriptor(int from, int to) { return (from == to ? fcntl(to, F_SETFD, 0) : dup2(from, to)) >= 0; }

// Turns the forked process into the program. Returns only if that fails, with errno set. Calls only functions that are safe in a
// signal handler, because another thread of this program may have held a lock when it was forked.
void become(const ChildCommand& command, const std::vector<char*>& words, const Pipe& input, const std::vector<Pipe>& outputs,
            pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, command.ends_as_group ? SIGHUP : SIGKILL);
  if (getppid() != parent) _exit(0);  // the parent ended before that call
  for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_DFL);
  bool placed = place_descriptor(input.read_end(), STDIN_FILENO);
  for (size_t i = 0; i < outputs.size(); ++i)
    for (const int descriptor : command.outputs[i].descriptors)
      placed = placed && place_descriptor(outputs[i].write_end(), descriptor);
  for (const int descriptor : command.inherited) placed = placed && place_descriptor(descriptor, descriptor);
  if (placed) execve(words[0], words.data(), environ);
}

// The path of a program, which is looked up in PATH if its name has no slash. If there is none, returns the name.
std::string path_of_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* const path = std::getenv("PATH");
  for (std::string_view rest = path ? path : "/usr/bin:/bin"; !rest.empty();) {
    const auto folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    const auto candidate = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return name;
}

// Starts the child in such a way that it ends if this program is killed. With ends_as_group it runs below a shell, to which the
// system then sends SIGHUP and which sends SIGTERM to the whole group.
pid_t spawn(const ChildCommand& command, const Pipe& input, const std::vector<Pipe>& outputs) {
  const auto fail = [&](int error) {
    throw UsageError(fmt::format("cannot start {}: {}", command.words[0], std::strerror(error)));
  };
  auto texts = command.words;
  texts[0] = path_of_program(texts[0]);
  if (command.ends_as_group) {
    if (access(texts[0].c_str(), X_OK) != 0) fail(errno);
    const std::vector<std::string> shell = {"/bin/sh", "-c", "trap 'kill -TERM 0' HUP; \"$@\" & wait $!", "sh"};
    texts.insert(texts.begin(), shell.begin(), shell.end());
  }
  std::vector<char*> words;
  for (auto& text : texts) words.push_back(text.data());
  words.push_back(nullptr);
  Pipe failure;  // closed by a successful exec; otherwise the child writes the error's number to it
  const pid_t parent = getpid(), child = fork();
  if (child < 0) fail(errno);
  if (child == 0) {
    become(command, words, input, outputs, parent);
    const int error = errno;
    static_cast<void>(!write(failure.write_end(), &error, sizeof error));
    _exit(127);
  }
  setpgid(child, child);  // done by both, so that the group exists whichever of them is first
  failure.close_write();
  int error = 0;
  ssize_t count = 0;
  while ((count = read(failure.read_end(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (count == ssize_t(sizeof error)) {
    waitpid(child, nullptr, 0);
    fail(error);
  }
  return child;
}

// A child of this process.
class OwnChild final : public GroupLeader {
 public:
  explicit OwnChild(pid_t id) : id_(id) {}
  pid_t id() const override { return id_; }
  // Does not reap the child (WNOWAIT), because no other process group can get its id until it is reaped.
  bool has_ended() override {
    siginfo_t info{};
    return waitid(P_PID, id_t(id_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
  }
  int reap() override {
    int status = 0;
    while (waitpid(id_, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }

 private:
  pid_t id_;
};

}  // namespace

ChildProcess::ChildProcess(ChildCommand command) : command_(std::move(command)), outputs_(command_.outputs.size()) {
  throw_if_interrupted();
  if (command_.start) {
    ChildStreams streams{input_.read_end(), {}};
    for (const auto& output : outputs_) streams.outputs.push_back(output.write_end());
    leader_ = command_.start(streams);
  }
  if (!leader_) leader_ = std::make_unique<OwnChild>(spawn(command_, input_, outputs_));
  input_.close_read();
  for (auto& output : outputs_) output.close_write();
  fcntl(input_.write_end(), F_SETFL, O_NONBLOCK);
  if (command_.input.empty()) input_.close_write();
}

ChildProcess::~ChildProcess() { end_group(); }

ChildResult ChildProcess::finish(double deadline_s) {
  ChildResult result;
  for (;;) {
    throw_if_interrupted();
    if (flooded_ || leader_->has_ended()) break;
    const double left_s = deadline_s - elapsed_s();
    if (left_s <= 0) {
      result.end = ChildEnd::deadline;
      break;
    }
    transfer(std::min(left_s, kPollS));
  }
  end_group();
  drain();
  result.wall_s = elapsed_s();
  if (flooded_) result.end = ChildEnd::flooded;
  if (result.end != ChildEnd::exited) return result;
  if (WIFSIGNALED(status_)) result.end = ChildEnd::signalled;
  result.code = WIFSIGNALED(status_) ? WTERMSIG(status_) : WEXITSTATUS(status_);
  return result;
}

bool ChildProcess::outputs_are_open() const {
  return std::any_of(outputs_.begin(), outputs_.end(), [](const Pipe& output) { return output.read_end() >= 0; });
}

// Waits up to `timeout_s` seconds until the input or an output is ready, and transfers what is ready. Returns whether any was.
bool ChildProcess::transfer(double timeout_s) {
  std::vector<pollfd> polled = {{input_.write_end(), POLLOUT, 0}};  // poll ignores closed ends, which are -1
  for (const auto& output : outputs_) polled.push_back({output.read_end(), POLLIN, 0});
  if (!outputs_are_open()) timeout_s = std::min(timeout_s, kPollSilentS);
  if (poll(polled.data(), polled.size(), int(std::ceil(timeout_s * 1000))) <= 0) return false;
  if (polled[0].revents != 0) {
    const auto& input = command_.input;
    const auto written = write(input_.write_end(), input.data() + sent_, input.size() - sent_);
    if (written > 0) sent_ += size_t(written);
    // An error ends only the transfer of the input: the child may have ended without reading it.
    if (sent_ == input.size() || (written < 0 && errno != EAGAIN && errno != EINTR)) input_.close_write();
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (polled[i + 1].revents == 0) continue;
    std::array<char, 65536> buffer;
    const auto count = read(outputs_[i].read_end(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    const bool refused = count > 0 && !command_.outputs[i].receive({buffer.data(), size_t(count)});
    flooded_ = flooded_ || refused;
    if (count <= 0 || refused) outputs_[i].close_read();
  }
  return true;
}

// Receives what the child wrote before it ended.
void ChildProcess::drain() {
  const double end_s = elapsed_s() + kDrainS;
  while (outputs_are_open() && elapsed_s() < end_s && transfer(0)) {
  }
}

void ChildProcess::end_group() {
  if (!leader_) return;
  // The outputs close when the last process that holds them has ended. That process may be in another group, which the signals
  // below do not reach and only its parent can end: ninja, for example, puts each compiler into a group of its own.
  const auto any_left = [&] { return outputs_are_open() || !leader_->has_ended(); };
  if (command_.grace_s > 0 && any_left()) {
    kill(-leader_->id(), SIGTERM);
    const double end_s = elapsed_s() + command_.grace_s;
    while (any_left() && elapsed_s() < end_s) transfer(kPollS);
  }
  kill(-leader_->id(), SIGKILL);
  status_ = leader_->reap();
  leader_.reset();
}

}  // namespace attnbench
