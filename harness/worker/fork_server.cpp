// Loads Python, forks a process for each message, and tells the driver which of them have ended.
#include "harness/worker/fork_server.h"

#include <c10/util/Exception.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iterator>

#include "harness/schema/forking.h"
#include "harness/schema/json.h"
#include "harness/worker/methods/methods.h"

namespace attnbench {
namespace {

// A process that this one has forked and not reaped yet.
struct Forked {
  pid_t id;
  int status_socket;
  bool has_ended = false;
};

// How many threads this process had when it was last about to be forked.
std::ptrdiff_t threads_at_fork = 0;

void count_threads() {
  namespace fs = std::filesystem;
  threads_at_fork = std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
}

// Loads Python and torch. Returns why no process can be forked afterwards; empty text if one can.
std::string load() {
  // Functions that run before a fork are called in the reverse order of their registration. So count_threads() is called after
  // libraries that are loaded below, such as NumPy's OpenBLAS, have ended the threads that they start again after a fork.
  pthread_atfork(count_threads, nullptr, nullptr);
  try {
    start_python();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  const pid_t trial = fork_with_python();
  if (trial == 0) std::_Exit(0);
  if (trial < 0) return std::string("a process cannot be forked: ") + std::strerror(errno);
  waitpid(trial, nullptr, 0);
  // A fork copies only the thread that calls it. A lock that another thread holds would never be released in the forked process.
  return threads_at_fork == 1 ? ""
                              : "Python and torch run " + std::to_string(threads_at_fork) +
                                    " threads, and a process with several threads cannot be forked safely";
}

void send_number(int socket, int number) {
  // This fails only if the driver has closed the socket and no longer waits for the process.
  static_cast<void>(!send(socket, &number, sizeof number, MSG_NOSIGNAL));
}

class Server {
 public:
  explicit Server(int requests) : requests_(requests) {
    sigset_t ended;
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ended, &signals_before_);
    ends_ = signalfd(-1, &ended, SFD_CLOEXEC | SFD_NONBLOCK);
  }

  // Returns once the driver has closed the socket. Processes that still run then end with this one.
  void run(const std::function<int(std::vector<std::string>)>& run_worker) {
    for (;;) {
      std::vector<pollfd> polled = {{requests_, POLLIN, 0}, {ends_, POLLIN, 0}};
      for (const auto& forked : forked_) polled.push_back({forked.status_socket, 0, 0});  // asks for hang-ups alone
      if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
      if (polled[1].revents != 0) report_ends();
      reap(polled);
      if (polled[0].revents == 0) continue;
      ForkMessage request;
      if (!receive_message(requests_, request)) return;
      if (request.descriptors.size() > kDiagnostics) start(request, run_worker);
      else
        for (const int descriptor : request.descriptors) close(descriptor);
    }
  }

 private:
  void start(const ForkMessage& request, const std::function<int(std::vector<std::string>)>& run_worker) {
    const int status_socket = request.descriptors[kStatus];
    std::fflush(nullptr);  // Otherwise the forked process would write the content of the buffers a second time.
    const pid_t server = getpid();
    const pid_t id = fork_with_python();
    if (id == 0) become_worker(request, server, run_worker);
    const int error = errno;
    if (id > 0) setpgid(id, id);  // The forked process does this, too, so that the group exists whichever is first.
    send_number(status_socket, id > 0 ? id : -error);
    for (size_t i = kInput; i < request.descriptors.size(); ++i) close(request.descriptors[i]);
    if (id > 0) forked_.push_back({id, status_socket});
    else close(status_socket);
  }

  // Gives the forked process the streams, the process group, the signals and the end of a worker that was started as a program.
  [[noreturn]] void become_worker(const ForkMessage& request, pid_t server,
                                  const std::function<int(std::vector<std::string>)>& run_worker) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != server) std::_Exit(0);  // The server ended before prctl() was called.
    for (const auto& forked : forked_) close(forked.status_socket);
    for (const int descriptor : {requests_, ends_, request.descriptors[kStatus]}) close(descriptor);
    const auto place = [&](ForkDescriptor which, std::initializer_list<int> targets) {
      const int descriptor = request.descriptors[which];
      for (const int target : targets)
        if (dup2(descriptor, target) < 0) std::_Exit(127);
      if (std::find(targets.begin(), targets.end(), descriptor) == targets.end()) close(descriptor);
    };
    place(kInput, {STDIN_FILENO});
    place(kDiagnostics, {STDOUT_FILENO, STDERR_FILENO});
    sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
    std::vector<std::string> words = {"attnbench-worker", "--answer-fd=" + std::to_string(request.descriptors[kAnswer])};
    for (const auto& argument : Json::parse(request.text)) words.push_back(argument.get<std::string>());
    if (request.descriptors.size() > kTurnsTo)
      words.push_back("--turns=" + std::to_string(request.descriptors[kTurnsFrom]) + "," +
                      std::to_string(request.descriptors[kTurnsTo]));
    const int code = run_worker(std::move(words));
    std::fflush(nullptr);
    // This skips the destructors, which would end the interpreter from a thread that does not hold its GIL.
    std::_Exit(code);
  }

  // Tells the driver which processes have ended. They are not reaped yet (WNOWAIT), so that their ids cannot belong to another
  // process group while the driver may still send signals to them.
  void report_ends() {
    signalfd_siginfo ended;
    while (read(ends_, &ended, sizeof ended) > 0) {
    }
    for (auto& forked : forked_) {
      siginfo_t info{};
      if (forked.has_ended || waitid(P_PID, id_t(forked.id), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
        continue;
      forked.has_ended = true;
      send_number(forked.status_socket, info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status);
    }
  }

  // Reaps the processes whose status sockets the driver has closed. `polled` has an entry for each after the first two.
  void reap(const std::vector<pollfd>& polled) {
    for (size_t i = forked_.size(); i-- > 0;) {
      if (polled[i + 2].revents == 0) continue;
      kill(-forked_[i].id, SIGKILL);
      while (waitpid(forked_[i].id, nullptr, 0) < 0 && errno == EINTR) {
      }
      close(forked_[i].status_socket);
      forked_.erase(forked_.begin() + std::ptrdiff_t(i));
    }
  }

  int requests_, ends_;
  sigset_t signals_before_{};
  std::vector<Forked> forked_;
};

}  // namespace

int serve(int requests, const std::function<int(std::vector<std::string>)>& run) {
  const auto refusal = load();
  if (!send_message(requests, refusal)) return 1;
  if (refusal.empty()) Server(requests).run(run);
  // This skips the destructors, for the reason in become_worker().
  std::_Exit(0);
}

}  // namespace attnbench
