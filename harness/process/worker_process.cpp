#include "harness/process/worker_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "harness/process/pipe.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

constexpr size_t kMaxAnswerBytes = size_t{64} << 20;
constexpr size_t kMaxDiagnosticsBytes = 8192;
constexpr size_t kMinDiagnosticsBytes = 4096;
constexpr double kAskDeadlineS = 600;
// Answers have a descriptor of their own, because libraries print to standard output.
constexpr int kAnswerDescriptor = 3;

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

// A worker that was started, and what it has written so far.
class Worker {
 public:
  Worker(const WorkerProgram& program, std::vector<std::string> arguments, const Json& request, std::vector<int> inherited = {})
      : process_(command(program, std::move(arguments), request, std::move(inherited))) {}

  WorkerAnswer finish(double deadline_s) {
    const auto [end, code, wall_s] = process_.finish(deadline_s);
    WorkerAnswer answer{.end = end, .code = code, .diagnostics = std::move(diagnostics_), .wall_s = wall_s};
    split_answers(answers_, answer);
    return answer;
  }

 private:
  ChildCommand command(const WorkerProgram& program, std::vector<std::string> arguments, const Json& request,
                       std::vector<int> inherited) {
    auto words = program.launcher;
    words.insert(words.end(), {program.path, fmt::format("--answer-fd={}", kAnswerDescriptor)});
    words.insert(words.end(), std::make_move_iterator(arguments.begin()), std::make_move_iterator(arguments.end()));
    const auto receive_answer = [this](std::string_view text) {
      answers_ += text;
      return answers_.size() <= kMaxAnswerBytes;
    };
    const auto receive_diagnostics = [this](std::string_view text) {
      diagnostics_ += text;
      if (diagnostics_.size() > kMaxDiagnosticsBytes) diagnostics_.erase(0, diagnostics_.size() - kMinDiagnosticsBytes);
      return true;
    };
    return {.words = std::move(words),
            .input = request.dump(),
            .outputs = {{{kAnswerDescriptor}, receive_answer}, {{STDOUT_FILENO, STDERR_FILENO}, receive_diagnostics}},
            .inherited = std::move(inherited)};
  }

  std::string answers_, diagnostics_;
  ChildProcess process_;  // writes to them as long as it exists
};

}  // namespace

WorkerProgram worker_beside_this_program() {
  return {(std::filesystem::read_symlink("/proc/self/exe").parent_path() / "attnbench-worker").string()};
}

WorkerAnswer run_worker(const WorkerProgram& worker, const std::string& command, const Json& request, double deadline_s) {
  return Worker(worker, {command}, request).finish(deadline_s);
}

std::vector<Json> ask_worker(const WorkerProgram& worker, const std::string& command, const Json& request, size_t answers) {
  const auto answer = run_worker(worker, command, request, kAskDeadlineS);
  if (answer.end != WorkerAnswer::End::exited || answer.code != 0 || answer.lines.size() != answers)
    throw UsageError(fmt::format("`{} {}` did not answer{}{}", worker.path, command, answer.diagnostics.empty() ? "" : ": ",
                                 answer.diagnostics));
  return answer.lines;
}

std::vector<WorkerAnswer> run_in_turns(const std::vector<WorkerRequest>& requests, int processor, double deadline_s) {
  // Threads of libgomp spin for up to ten milliseconds while they wait for their next loop: in the turn of another worker.
  setenv("GOMP_SPINCOUNT", "10000", /*overwrite=*/0);
  std::vector<std::future<WorkerAnswer>> answers;
  {
    // Pipe i leads to worker i. This process closes its ends before it waits: only if nobody else holds them does a worker see
    // that the one before it has ended.
    const std::vector<Pipe> ring(requests.size());
    std::vector<std::shared_ptr<Worker>> workers;
    for (size_t i = 0; i < requests.size(); ++i) {
      const int from = ring[i].read_end(), to = ring[(i + 1) % ring.size()].write_end();
      std::vector<std::string> arguments = {"measure", fmt::format("--turns={},{}", from, to)};
      if (processor >= 0) arguments.push_back(fmt::format("--processor={}", processor));
      const auto& [worker, request] = requests[i];
      workers.push_back(std::make_shared<Worker>(worker, std::move(arguments), request, std::vector{from, to}));
    }
    const char turn = 0;
    if (write(ring.front().write_end(), &turn, 1) != 1)
      throw UsageError(fmt::format("cannot give the first turn to a worker: {}", std::strerror(errno)));
    for (auto& worker : workers)
      answers.push_back(
          std::async(std::launch::async, [worker = std::move(worker), deadline_s] { return worker->finish(deadline_s); }));
  }
  std::vector<WorkerAnswer> all;
  for (auto& answer : answers) all.push_back(answer.get());
  return all;
}

}  // namespace attnbench
