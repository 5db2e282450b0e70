// Forks workers from one process that has already loaded Python and torch, which takes seconds in a fresh process.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/process/child_process.h"

namespace attnbench {

class ForkServer {
 public:
  // `worker` is the path of the worker program.
  explicit ForkServer(std::string worker);
  ~ForkServer();
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  // Why no worker can be forked; empty if workers can be forked. The first call starts the command `serve` of the worker, and
  // waits until it has loaded what it needs. Throws UsageError if it cannot be started, and Interrupted if SIGINT or SIGTERM
  // arrives.
  const std::string& refusal();

  // Forks a worker, which reads its command line from `arguments` and writes to the two `streams.outputs`: its answer, and what
  // else it prints. `turns` are the descriptors through which it takes turns. Only if refusal() is empty. Returns null if the
  // worker cannot be forked, and refusal() then says why.
  std::unique_ptr<GroupLeader> fork(const std::vector<std::string>& arguments, const ChildStreams& streams,
                                    const std::optional<std::pair<int, int>>& turns);

 private:
  void start();

  std::string worker_, diagnostics_;
  std::optional<std::string> refusal_;
  int socket_ = -1;
  std::optional<ChildProcess> process_;  // declared last, because it writes to the diagnostics as long as it exists
};

}  // namespace attnbench
