#include "harness/process/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
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

pid_t spawn(const ChildCommand& command, const Pipe& input, const std::vector<Pipe>& outputs) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.read_end(), STDIN_FILENO);
  for (size_t i = 0; i < outputs.size(); ++i)
    for (const int descriptor : command.outputs[i].descriptors)
      posix_spawn_file_actions_adddup2(&actions, outputs[i].write_end(), descriptor);
  for (const int descriptor : command.inherited) posix_spawn_file_actions_adddup2(&actions, descriptor, descriptor);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);

  auto words = command.words;
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw UsageError(fmt::format("cannot start {}: {}", words[0], std::strerror(error)));
  return pid;
}

}  // namespace

ChildProcess::ChildProcess(ChildCommand command) : command_(std::move(command)), outputs_(command_.outputs.size()) {
  throw_if_interrupted();
  leader_ = spawn(command_, input_, outputs_);
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
    if (flooded_ || leader_has_ended()) break;
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

// Does not reap the leader (WNOWAIT), because no other process group can get its id until it is reaped.
bool ChildProcess::leader_has_ended() const {
  siginfo_t info{};
  return waitid(P_PID, id_t(leader_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
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
  if (leader_ < 0) return;
  // The outputs close when the last process that holds them has ended. That process may be in another group, which the signals
  // below do not reach and only its parent can end: ninja, for example, puts each compiler into a group of its own.
  const auto any_left = [&] { return outputs_are_open() || !leader_has_ended(); };
  if (command_.grace_s > 0 && any_left()) {
    kill(-leader_, SIGTERM);
    const double end_s = elapsed_s() + command_.grace_s;
    while (any_left() && elapsed_s() < end_s) transfer(kPollS);
  }
  kill(-leader_, SIGKILL);
  while (waitpid(leader_, &status_, 0) < 0 && errno == EINTR) {
  }
  leader_ = -1;
}

}  // namespace attnbench
