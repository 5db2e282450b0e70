#include "harness/process/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "harness/text/errors.h"

namespace attnbench {
namespace {

constexpr size_t kLargestAnswer = size_t{64} << 20;
constexpr size_t kKeptDiagnostics = 4096;
constexpr double kDrainS = 0.2;
constexpr int kAnswerDescriptor = 3;

volatile std::sig_atomic_t caught_signal = 0;

void throw_if_interrupted() {
  if (caught_signal != 0) throw Interrupted(caught_signal);
}

class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0) throw UsageError(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    // Out of the way of the numbers that a worker finds its own at.
    const auto low = ends_;
    for (auto& end : ends_) end = fcntl(end, F_DUPFD_CLOEXEC, kAnswerDescriptor + 1);
    const int error = errno;
    for (const int end : low) close(end);
    if (ends_[0] >= 0 && ends_[1] >= 0) return;
    close_read();
    close_write();
    throw UsageError(fmt::format("cannot make a pipe: {}", std::strerror(error)));
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close_read() { close_end(0); }
  void close_write() { close_end(1); }

 private:
  void close_end(size_t i) {
    if (ends_[i] >= 0) close(ends_[i]);
    ends_[i] = -1;
  }
  std::array<int, 2> ends_{-1, -1};
};

// Kills and reaps the worker's group however the scope is left.
class ProcessGroup {
 public:
  explicit ProcessGroup(pid_t leader) : leader_(leader) {}
  ~ProcessGroup() { end(); }
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  // Waits for the leader; then nothing of its group is left.
  int end() {
    if (leader_ < 0) return status_;
    kill(-leader_, SIGKILL);
    while (waitpid(leader_, &status_, 0) < 0 && errno == EINTR) {
    }
    leader_ = -1;
    return status_;
  }
  // Whether the leader ended by itself; its group's remains are killed.
  bool ended() {
    siginfo_t info{};
    if (waitid(P_PID, id_t(leader_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return false;
    end();
    return true;
  }

 private:
  pid_t leader_;
  int status_ = 0;
};

// `words` are the worker's path, where it is not the usual one behind its launcher, and its arguments; `kept` are descriptors
// that it has by the same number.
pid_t start(std::vector<std::string> words, const std::vector<int>& kept, Pipe& request, Pipe& answer, Pipe& diagnostics) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, request.read_end(), 0);
  posix_spawn_file_actions_adddup2(&actions, diagnostics.write_end(), 1);
  posix_spawn_file_actions_adddup2(&actions, diagnostics.write_end(), 2);
  posix_spawn_file_actions_adddup2(&actions, answer.write_end(), kAnswerDescriptor);
  for (const int descriptor : kept) posix_spawn_file_actions_adddup2(&actions, descriptor, descriptor);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);

  const auto& path = words.front();
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, path.c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw UsageError(fmt::format("cannot start {}: {}", path, std::strerror(error)));
  return pid;
}

void split_answers(const std::string& text, WorkerAnswer& answer) {
  for (size_t begin = 0; begin < text.size();) {
    auto end = text.find('\n', begin);
    const bool torn = end == std::string::npos;
    if (torn) end = text.size();
    auto json = Json::parse(text.begin() + std::ptrdiff_t(begin), text.begin() + std::ptrdiff_t(end), nullptr, false);
    if (torn || json.is_discarded()) {
      answer.unreadable = text.substr(begin, 200);
      return;
    }
    answer.lines.push_back(std::move(json));
    begin = end + 1;
  }
}

// A worker that was started, with the pipes to it.
class Worker {
 public:
  Worker(const WorkerProgram& program, std::vector<std::string> arguments, const std::vector<int>& kept = {}) {
    throw_if_interrupted();
    auto words = program.launcher;
    words.insert(words.end(), {program.path, fmt::format("--answer-fd={}", kAnswerDescriptor)});
    words.insert(words.end(), std::make_move_iterator(arguments.begin()), std::make_move_iterator(arguments.end()));
    group_.emplace(start(std::move(words), kept, to_worker_, from_worker_, diagnostics_));
    to_worker_.close_read();
    from_worker_.close_write();
    diagnostics_.close_write();
  }
  WorkerAnswer finish(const Json& request, double deadline_s);

 private:
  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Pipe to_worker_, from_worker_, diagnostics_;
  std::optional<ProcessGroup> group_;  // ends before the pipes close
};

WorkerAnswer Worker::finish(const Json& request, double deadline_s) {
  const auto to_send = request.dump();
  size_t sent = 0;
  fcntl(to_worker_.write_end(), F_SETFL, O_NONBLOCK);
  std::string answers;
  WorkerAnswer answer;
  bool leader_ended = false;
  double drained_at = 0;
  // Until both streams close. A grandchild outside the group may hold them open, or go on writing, when the worker has ended:
  // then what is there is read, for a moment, and no more is awaited.
  for (std::array<pollfd, 3> polled{
           {{to_worker_.write_end(), POLLOUT, 0}, {from_worker_.read_end(), POLLIN, 0}, {diagnostics_.read_end(), POLLIN, 0}}};
       polled[1].fd >= 0 || polled[2].fd >= 0;) {
    const double left_s = deadline_s - elapsed();
    if (left_s <= 0 && !leader_ended) {
      answer.end = WorkerAnswer::End::deadline;
      break;
    }
    const int ready = poll(polled.data(), polled.size(), leader_ended ? 0 : int(std::min(left_s, 0.1) * 1000) + 1);
    throw_if_interrupted();
    if (!leader_ended && group_->ended()) {
      leader_ended = true;
      drained_at = elapsed() + kDrainS;
    }
    if (leader_ended && (ready == 0 || elapsed() > drained_at)) break;
    if (ready == 0) continue;
    if (polled[0].revents != 0) {
      const auto written = write(polled[0].fd, to_send.data() + sent, to_send.size() - sent);
      if (written > 0) sent += size_t(written);
      if (sent == to_send.size() || (written < 0 && errno != EAGAIN && errno != EINTR)) {
        to_worker_.close_write();
        polled[0].fd = -1;
      }
    }
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      std::array<char, 65536> buffer;
      const auto count = read(polled[i].fd, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        polled[i].fd = -1;
        continue;
      }
      auto& text = i == 1 ? answers : answer.diagnostics;
      text.append(buffer.data(), size_t(count));
      if (answer.diagnostics.size() > 2 * kKeptDiagnostics)
        answer.diagnostics.erase(0, answer.diagnostics.size() - kKeptDiagnostics);
    }
    if (answers.size() > kLargestAnswer) {
      answer.end = WorkerAnswer::End::flooded;
      break;
    }
  }
  // Streams closed: the worker is about to end; give it until its deadline.
  while (!leader_ended && answer.end == WorkerAnswer::End::exited) {
    throw_if_interrupted();
    leader_ended = group_->ended();
    if (leader_ended) break;
    if (elapsed() > deadline_s) answer.end = WorkerAnswer::End::deadline;
    usleep(500);
  }
  const int status = group_->end();
  answer.wall_s = elapsed();
  if (answer.end == WorkerAnswer::End::exited) {
    answer.end = WIFSIGNALED(status) ? WorkerAnswer::End::signalled : WorkerAnswer::End::exited;
    answer.code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  }
  split_answers(answers, answer);
  return answer;
}

}  // namespace

WorkerProgram worker_beside_this_program() {
  return {(std::filesystem::read_symlink("/proc/self/exe").parent_path() / "attnbench-worker").string()};
}

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { caught_signal = signal; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

WorkerAnswer run_worker(const WorkerProgram& worker, const std::string& command, const Json& request, double deadline_s) {
  return Worker(worker, {command}).finish(request, deadline_s);
}

std::vector<WorkerAnswer> run_in_turns(const std::vector<WorkerRequest>& requests, int processor, double deadline_s) {
  // Threads of libgomp that wait for their next loop spin for up to ten milliseconds, in a turn of another.
  setenv("GOMP_SPINCOUNT", "10000", /*overwrite=*/0);
  std::vector<std::future<WorkerAnswer>> answers;
  {
    // Pipe i leads to worker i. Only the workers may hold them, or none would see another's end.
    const std::vector<Pipe> ring(requests.size());
    std::vector<std::shared_ptr<Worker>> workers;
    for (size_t i = 0; i < requests.size(); ++i) {
      const int from = ring[i].read_end(), to = ring[(i + 1) % ring.size()].write_end();
      std::vector<std::string> arguments = {"measure", fmt::format("--turns={},{}", from, to)};
      if (processor >= 0) arguments.push_back(fmt::format("--processor={}", processor));
      workers.push_back(std::make_shared<Worker>(requests[i].worker, std::move(arguments), std::vector{from, to}));
    }
    const char turn = 0;
    if (write(ring.front().write_end(), &turn, 1) != 1)
      throw UsageError(fmt::format("cannot begin to take turns: {}", std::strerror(errno)));
    for (size_t i = 0; i < requests.size(); ++i)
      answers.push_back(std::async(std::launch::async, [worker = std::move(workers[i]), &request = requests[i].request,
                                                        deadline_s] { return worker->finish(request, deadline_s); }));
  }
  std::vector<WorkerAnswer> all;
  for (auto& answer : answers) all.push_back(answer.get());
  return all;
}

std::vector<Json> ask_worker(const WorkerProgram& worker, const std::string& command, const Json& request, size_t answers) {
  const auto answer = run_worker(worker, command, request, 600);
  if (answer.end != WorkerAnswer::End::exited || answer.code != 0 || answer.lines.size() != answers)
    throw UsageError(fmt::format("`{} {}` did not answer{}{}", worker.path, command, answer.diagnostics.empty() ? "" : ": ",
                                 answer.diagnostics));
  return answer.lines;
}

}  // namespace attnbench
