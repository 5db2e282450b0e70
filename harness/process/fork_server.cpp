// Starts the server, asks it for forks over a socket, and watches the workers that it has forked.
#include "harness/process/fork_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "harness/process/interrupts.h"
#include "harness/schema/forking.h"
#include "harness/schema/json.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

// The server imports torch within seconds; a machine may be slow or busy.
constexpr double kLoadDeadlineS = 300;
constexpr int kPollMs = 100;
constexpr size_t kMaxServerDiagnosticsBytes = size_t{1} << 16;

// The two ends of a socket, above the descriptors that a child's streams have.
std::array<int, 2> make_sockets() {
  constexpr int kMinDescriptor = 4;
  std::array<int, 2> made{}, moved{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, made.data()) != 0)
    throw UsageError(fmt::format("cannot create a socket: {}", std::strerror(errno)));
  for (size_t i = 0; i < made.size(); ++i) {
    moved[i] = fcntl(made[i], F_DUPFD_CLOEXEC, kMinDescriptor);
    close(made[i]);
  }
  if (moved[0] >= 0 && moved[1] >= 0) return moved;
  for (const int descriptor : moved)
    if (descriptor >= 0) close(descriptor);
  throw UsageError(fmt::format("cannot create a socket: {}", std::strerror(errno)));
}

// Receives the next number. If there is none, returns false with errno set, which is 0 if the server has closed the socket.
bool receive_number(int socket, int flags, int& number) {
  ssize_t count = 0;
  do count = recv(socket, &number, sizeof number, flags);
  while (count < 0 && errno == EINTR);
  if (count == 0) errno = 0;
  return count == ssize_t(sizeof number);
}

class ForkedWorker final : public GroupLeader {
 public:
  ForkedWorker(pid_t id, int socket) : id_(id), socket_(socket) {}
  ~ForkedWorker() override { close(socket_); }  // the server then reaps the process
  ForkedWorker(const ForkedWorker&) = delete;
  ForkedWorker& operator=(const ForkedWorker&) = delete;

  pid_t id() const override { return id_; }
  bool has_ended() override {
    if (!has_ended_) receive_status(MSG_DONTWAIT);
    return has_ended_;
  }
  int reap() override {
    if (!has_ended_) receive_status(0);
    return status_;
  }

 private:
  void receive_status(int flags) {
    has_ended_ = receive_number(socket_, flags, status_);
    if (has_ended_ || errno == EAGAIN) return;
    has_ended_ = true;
    status_ = SIGKILL;  // which the process gets when the server ends
  }

  pid_t id_;
  int socket_;
  bool has_ended_ = false;
  int status_ = 0;
};

}  // namespace

ForkServer::ForkServer(std::string worker) : worker_(std::move(worker)) {}

ForkServer::~ForkServer() {
  if (socket_ >= 0) close(socket_);
}

void ForkServer::start() {
  const auto [mine, its] = make_sockets();
  socket_ = mine;
  const auto receive = [this](std::string_view text) {
    diagnostics_ += text;
    return diagnostics_.size() <= kMaxServerDiagnosticsBytes;
  };
  try {
    process_.emplace(ChildCommand{.words = {worker_, "serve", fmt::format("--requests={}", its)},
                                  .outputs = {{{STDOUT_FILENO, STDERR_FILENO}, receive}},
                                  .inherited = {its}});
  } catch (...) {
    close(its);
    throw;
  }
  close(its);
}

const std::string& ForkServer::refusal() {
  if (!process_) start();
  for (double waited_s = 0; !refusal_; waited_s += kPollMs / 1000.0) {
    throw_if_interrupted();
    pollfd polled{socket_, POLLIN, 0};
    const int ready = poll(&polled, 1, kPollMs);
    ForkMessage first;
    if (ready > 0 && receive_message(socket_, first)) {
      refusal_ = first.text;
    } else if (ready > 0 || waited_s > kLoadDeadlineS) {
      const auto result = process_->finish(1);
      refusal_ = fmt::format("the process that loads torch {}; it said: {}",
                             result.end == ChildEnd::signalled ? fmt::format("died of signal {}", result.code)
                             : result.end == ChildEnd::exited  ? fmt::format("ended with exit code {}", result.code)
                                                               : "did not get ready",
                             diagnostics_.empty() ? "nothing" : diagnostics_);
    }
  }
  return *refusal_;
}

std::unique_ptr<GroupLeader> ForkServer::fork(const std::vector<std::string>& arguments, const ChildStreams& streams,
                                              const std::optional<std::pair<int, int>>& turns) {
  const auto [mine, its] = make_sockets();
  std::vector<int> descriptors = {its, streams.input};
  descriptors.insert(descriptors.end(), streams.outputs.begin(), streams.outputs.end());
  if (turns) descriptors.insert(descriptors.end(), {turns->first, turns->second});
  int number = 0;
  int error = 0;
  if (!send_message(socket_, Json(arguments).dump(), descriptors)) error = errno;
  close(its);  // so that the socket closes when the server ends
  if (error == 0 && !receive_number(mine, 0, number)) error = errno == 0 ? EPIPE : errno;
  if (number > 0) return std::make_unique<ForkedWorker>(number, mine);
  if (number < 0) error = -number;
  close(mine);
  refusal_ = error == EPIPE || error == ECONNRESET ? "the process that forks workers has ended"
                                                   : fmt::format("a process cannot be forked: {}", std::strerror(error));
  return nullptr;
}

}  // namespace attnbench
