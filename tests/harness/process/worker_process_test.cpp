// Tests of asking workers, with shell scripts as workers: how requests are sent and answers are read. The tests that every way in
// which a worker can end becomes a record are in case_runner_test.cpp.
#include "harness/process/worker_process.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <vector>

#include "harness/text/errors.h"
#include "tests/support/errors_of.h"
#include "tests/support/processes.h"

namespace attnbench {
namespace {

class WorkerProcess : public testing::Test {
 protected:
  WorkerProcess() { signal(SIGPIPE, SIG_IGN); }  // The driver ignores it too.
  ~WorkerProcess() override { EXPECT_TRUE(has_no_child()); }

  WorkerProgram worker(const std::string& commands) const { return {folder_.write_script("worker", commands)}; }

  TempFolder folder_;
};

TEST_F(WorkerProcess, GetsTheCommandAndTheRequest) {
  const auto program = worker("printf '%s|' \"$@\" >&2; cat >&3; echo >&3; echo 2 >&3");
  const auto answer = run_worker(program, "plan", {{"a", 1}}, 20);
  EXPECT_EQ(answer.end, WorkerAnswer::End::exited);
  EXPECT_EQ(answer.diagnostics, "--answer-fd=3|plan|");
  EXPECT_EQ(answer.lines, (std::vector<Json>{{{"a", 1}}, 2}));
}

TEST_F(WorkerProcess, IsStartedByItsLauncher) {
  const auto launcher = folder_.write_script("launcher", "echo launched \"$1\" >&2; shift; exec \"$@\"");
  auto program = worker("echo 1 >&3");
  program.launcher = {launcher, "--option"};
  EXPECT_EQ(ask_worker(program, "environment", nullptr, 1), std::vector<Json>{1});
  EXPECT_EQ(run_worker(program, "environment", nullptr, 20).diagnostics, "launched --option\n");
}

TEST_F(WorkerProcess, ALongRequestMayStayUnread) {
  const std::string megabyte(1 << 20, 'x');
  const auto answer = run_worker(worker("exit 0"), "plan", megabyte, 20);
  EXPECT_EQ(answer.end, WorkerAnswer::End::exited);
  const auto echoed = run_worker(worker("cat >&3"), "plan", megabyte, 20);
  EXPECT_EQ(echoed.unreadable.substr(0, 4), "\"xxx");  // The worker sends the request back without a line end.
  const auto whole = run_worker(worker("cat >&3; echo >&3"), "plan", megabyte, 20);
  ASSERT_EQ(whole.lines.size(), 1u);
  EXPECT_EQ(whole.lines[0], megabyte);
}

TEST_F(WorkerProcess, AMissingAnswerIsAnErrorThatNamesTheWorkerAndTheMethod) {
  const auto said = [&](const WorkerProgram& program, const Json& request = nullptr) {
    return message_of<WorkerError>([&] { ask_worker(program, "plan", request, 2); });
  };
  EXPECT_EQ(said(worker("echo 1 >&3; echo lost >&2")),
            fmt::format("`{} plan` broke: the worker gave 1 answer, expected 2; it said: lost", folder_.path("worker")));
  EXPECT_CONTAINS(said(worker("echo 1 >&3; echo 2 >&3; exit 1")), "exit code 1");
  EXPECT_CONTAINS(said(worker("echo 1 >&3; echo 2 >&3; kill -KILL $$")), "signal 9");
  EXPECT_CONTAINS(said(worker("echo 1 >&3; echo '{' >&3")), "not JSON: {");
  const Json cases = {{{"method", "softmax"}}, {{"method", "linear"}}};
  EXPECT_CONTAINS(said(worker("echo 1 >&3; kill -SEGV $$"), cases), "broke on method 'linear': the worker died of signal 11");
  EXPECT_CONTAINS(message_of<UsageError>([&] { ask_worker({folder_.path("none")}, "plan", nullptr, 2); }),
                  "cannot start " + folder_.path("none"));
}

TEST_F(WorkerProcess, EachLineIsHandedOverWhenItArrives) {
  // The worker waits for a file that this test writes when it receives the worker's first line.
  const auto file = folder_.path("seen");
  std::vector<Json> lines;
  const auto take = [&](const Json& line) {
    lines.push_back(line);
    std::ofstream(file) << "seen";
  };
  const auto program =
      worker("echo 1 >&3; while ! [ -e " + file + " ]; do sleep 0.01; done; printf '[2' >&3; sleep 0.05; echo ']' >&3");
  const auto answer = run_worker(program, "verify", nullptr, 60, take);
  EXPECT_EQ(answer.end, WorkerAnswer::End::exited);
  EXPECT_EQ(lines, (std::vector<Json>{1, {2}}));
  EXPECT_EQ(answer.lines, lines);
}

}  // namespace
}  // namespace attnbench
