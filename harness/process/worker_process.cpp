// Sends requests to workers, reads their answers line by line, and says in words how a worker ended.
#include "harness/process/worker_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "harness/files/installation.h"
#include "harness/process/pipe.h"
#include "harness/schema/field.h"
#include "harness/text/errors.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

constexpr size_t kMaxAnswerBytes = size_t{64} << 20;
constexpr size_t kMaxUnreadableBytes = 200;
// Diagnostics that grow beyond the max are cut to their last kMinDiagnosticsBytes.
constexpr size_t kMaxDiagnosticsBytes = 8192;
constexpr size_t kMinDiagnosticsBytes = 4096;
constexpr double kAskDeadlineS = 600;
constexpr int kCannotLoad = 127;  // the exit code of a program whose shared libraries the loader does not find
// Answers have a descriptor of their own, because libraries print to standard output.
constexpr int kAnswerDescriptor = 3;
// How a process began, as the column process_start says it.
constexpr const char *kFresh = "fresh", *kForked = "forked";

// Makes what a worker wrote fit for a message or a record: valid UTF-8 without spaces and line ends around it.
std::string trimmed(const std::string& text) {
  const auto valid = Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
  const auto begin = valid.find_first_not_of(" \n");
  return begin == std::string::npos ? "" : valid.substr(begin, valid.find_last_not_of(" \n") + 1 - begin);
}

// Threads of libgomp that wait for their next loop spin for up to ten milliseconds, which would fall into another worker's turn.
void let_waiting_threads_sleep() { setenv("GOMP_SPINCOUNT", "10000", /*overwrite=*/0); }

// A running worker, and what it has written so far.
class Worker {
 public:
  Worker(const WorkerProgram& program, std::vector<std::string> arguments, const Json& request,
         std::optional<std::pair<int, int>> turns = {}, OnLine on_line = {}, double grace_s = 0)
      : on_line_(std::move(on_line)), process_(command(program, std::move(arguments), request, turns, grace_s)) {
    if (!program.server) return;
    const auto& refusal = program.server->refusal();
    start_ = refusal.empty() ? kForked : fmt::format("{}: {}", kFresh, refusal);
  }

  WorkerAnswer finish(double deadline_s) {
    const auto [end, code, wall_s] = process_.finish(deadline_s);
    if (unreadable_.empty()) unreadable_ = rest_.substr(0, kMaxUnreadableBytes);
    return {.end = end,
            .code = code,
            .lines = std::move(lines_),
            .unreadable = std::move(unreadable_),
            .diagnostics = std::move(diagnostics_),
            .wall_s = wall_s,
            .deadline_s = deadline_s,
            .start = start_};
  }

 private:
  ChildCommand command(const WorkerProgram& program, std::vector<std::string> arguments, const Json& request,
                       const std::optional<std::pair<int, int>>& turns, double grace_s) {
    std::vector<std::string> words;
    for (const auto& folder : program.methods_folders) words.push_back(fmt::format("--methods-folder={}", folder));
    for (const auto& plugin : program.plugins) words.push_back(fmt::format("--plugin={}", plugin));
    words.insert(words.end(), std::make_move_iterator(arguments.begin()), std::make_move_iterator(arguments.end()));
    std::function<std::unique_ptr<GroupLeader>(const ChildStreams&)> start;
    if (program.server && program.server->refusal().empty())
      start = [server = program.server, words, turns](const ChildStreams& streams) {
        return server->fork(words, streams, turns);
      };
    auto fresh = program.launcher;
    fresh.insert(fresh.end(), {program.path, fmt::format("--answer-fd={}", kAnswerDescriptor)});
    fresh.insert(fresh.end(), std::make_move_iterator(words.begin()), std::make_move_iterator(words.end()));
    std::vector<int> inherited;
    if (turns) {
      fresh.push_back(fmt::format("--turns={},{}", turns->first, turns->second));
      inherited = {turns->first, turns->second};
    }
    const auto receive_answer = [this](std::string_view text) {
      received_bytes_ += text.size();
      if (unreadable_.empty()) take_lines(text);
      return received_bytes_ <= kMaxAnswerBytes;
    };
    const auto receive_diagnostics = [this](std::string_view text) {
      diagnostics_ += text;
      if (diagnostics_.size() > kMaxDiagnosticsBytes) diagnostics_.erase(0, diagnostics_.size() - kMinDiagnosticsBytes);
      return true;
    };
    return {.words = std::move(fresh),
            .input = request.dump(),
            .outputs = {{{kAnswerDescriptor}, receive_answer}, {{STDOUT_FILENO, STDERR_FILENO}, receive_diagnostics}},
            .inherited = std::move(inherited),
            .grace_s = grace_s,
            .start = std::move(start)};
  }

  // Appends `text` to the answer and parses the lines that it completes.
  void take_lines(std::string_view text) {
    rest_ += text;
    size_t begin = 0;
    for (auto end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
      try {
        lines_.push_back(parse_json(std::string_view(rest_).substr(begin, end - begin)));
      } catch (const JsonError&) {
        unreadable_ = rest_.substr(begin, kMaxUnreadableBytes);
        return;
      }
      if (on_line_) on_line_(lines_.back());
      begin = end + 1;
    }
    rest_.erase(0, begin);
  }

  OnLine on_line_;
  std::vector<Json> lines_;
  std::string rest_;  // the line that is not complete yet
  std::string unreadable_, diagnostics_;
  std::string start_ = kFresh;
  size_t received_bytes_ = 0;  // of the answer
  ChildProcess process_;       // declared last, because it writes to the members above as long as it exists
};

}  // namespace

WorkerProgram worker_beside_this_program() {
  return {.path = internal_program(program_folder(), "attnbench-worker").string(),
          .methods_folders = {".", project_folder().string()}};
}

WorkerProgram forking(WorkerProgram worker, bool takes_turns) {
  // The OpenMP library reads the variable when it is loaded, which the server does.
  if (takes_turns) let_waiting_threads_sleep();
  worker.server = std::make_shared<ForkServer>(worker.path);
  return worker;
}

WorkerProgram with_plugins(WorkerProgram worker, const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  for (const auto& path : paths) {
    std::error_code error;
    // Links are resolved, because a library that is loaded by two names has its initialisers run only once.
    const auto file = fs::canonical(path, error).string();
    if (error || !fs::is_regular_file(file, error))
      throw UsageError(fmt::format("{}: {}; expected a plug-in, which is a shared library", path,
                                   error ? error.message() : "not a regular file"));
    auto& plugins = worker.plugins;
    if (std::find(plugins.begin(), plugins.end(), file) == plugins.end()) plugins.push_back(file);
  }
  return worker;
}

WorkerAnswer run_worker(const WorkerProgram& worker, const std::string& command, const Json& request, double deadline_s,
                        OnLine on_line, const std::vector<std::string>& arguments, double grace_s) {
  std::vector<std::string> words = {command};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return Worker(worker, std::move(words), request, {}, std::move(on_line), grace_s).finish(deadline_s);
}

std::string fault_of(const WorkerAnswer& answer, size_t expected_lines) {
  std::string fault;
  switch (answer.end) {
    case WorkerAnswer::End::deadline:
      fault = fmt::format("the worker was ended at its deadline of {} s", answer.deadline_s);
      break;
    case WorkerAnswer::End::signalled:
      fault = fmt::format("the worker died of signal {} ({})", answer.code, strsignal(answer.code));
      break;
    case WorkerAnswer::End::flooded:
      fault = fmt::format("the worker was ended because its answer was longer than {} MiB", kMaxAnswerBytes >> 20);
      break;
    case WorkerAnswer::End::exited:
      if (answer.code != 0) fault = fmt::format("the worker ended with exit code {}", answer.code);
      else if (!answer.unreadable.empty()) return fmt::format("the worker's answer is not JSON: {}", trimmed(answer.unreadable));
      else if (answer.lines.size() != expected_lines)
        fault = fmt::format("the worker gave {}, expected {}", count_of(answer.lines.size(), "answer"), expected_lines);
      else return "";
  }
  auto said = trimmed(answer.diagnostics);
  // The loader's message for a program that has been moved to a machine whose torch is elsewhere.
  if (answer.code == kCannotLoad && said.find("libtorch") != std::string::npos)
    said += "; --torch or the environment variable ATTNBENCH_TORCH names the folder of torch";
  return said.empty() ? fault : fault + "; it said: " + said;
}

std::vector<Json> ask_worker(const WorkerProgram& worker, const std::string& command, const Json& request,
                             size_t expected_lines) {
  const auto answer = run_worker(worker, command, request, kAskDeadlineS);
  const auto fault = fault_of(answer, expected_lines);
  if (fault.empty()) return answer.lines;
  const auto done = answer.lines.size();
  const bool names_method = request.is_array() && done < request.size() && request[done].contains("method");
  throw WorkerError(
      fmt::format("`{} {}` broke{}: {}", worker.path, command,
                  names_method ? fmt::format(" on method '{}'", current_text("method", request[done]["method"])) : "", fault));
}

std::vector<WorkerAnswer> run_in_turns(const std::vector<WorkerRequest>& requests, int processor, double deadline_s) {
  let_waiting_threads_sleep();
  std::vector<std::future<WorkerAnswer>> answers;
  {
    // Worker i waits for its turn on pipe i and passes it on through pipe i + 1. This process closes its own ends before it waits
    // for the workers: a worker sees that the one before it has ended only if no other process holds the pipe open.
    const std::vector<Pipe> ring(requests.size());
    std::vector<std::shared_ptr<Worker>> workers;
    for (size_t i = 0; i < requests.size(); ++i) {
      const int from = ring[i].read_end(), to = ring[(i + 1) % ring.size()].write_end();
      std::vector<std::string> arguments = {"measure"};
      if (processor >= 0) arguments.push_back(fmt::format("--processor={}", processor));
      const auto& [worker, request, more] = requests[i];
      arguments.insert(arguments.end(), more.begin(), more.end());
      workers.push_back(std::make_shared<Worker>(worker, std::move(arguments), request, std::pair{from, to}));
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
