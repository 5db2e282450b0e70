// Tests of ChildProcess with shell scripts as children: the arguments and descriptors that they get, how their output is read,
// and that no process of theirs is left running.
#include "harness/process/child_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <limits>
#include <optional>

#include "harness/process/interrupts.h"
#include "harness/text/errors.h"
#include "tests/support/errors_of.h"
#include "tests/support/processes.h"

namespace attnbench {
namespace {

constexpr double kNoDeadline = std::numeric_limits<double>::infinity();

class ChildProcesses : public testing::Test {
 protected:
  ChildProcesses() { signal(SIGPIPE, SIG_IGN); }  // The driver ignores it too.
  ~ChildProcesses() override { EXPECT_TRUE(has_no_child()); }

  // A shell that runs `script`; its standard output is appended to output_.
  ChildCommand shell(const std::string& script) {
    return {.words = {"sh", "-c", script}, .outputs = {{{1}, [this](std::string_view text) {
                                                          output_ += text;
                                                          return true;
                                                        }}}};
  }
  std::string path(const std::string& name) const { return folder_.path(name); }
  // A part of a script. It starts a process in a process group of its own, which does not end with the child's group, and writes
  // its process id to the file `elsewhere`.
  std::string start_in_another_group() const {
    return "setsid sh -c 'echo $$ > " + path("elsewhere") + "; exec sleep 300' >/dev/null & while [ ! -s " + path("elsewhere") +
           " ]; do sleep 0.01; done; ";
  }

  TempFolder folder_;
  std::string output_;
};

TEST_F(ChildProcesses, AreGivenArgumentsAndInput) {
  auto command = shell("cat; printf '[%s]' \"$@\"");
  command.words.insert(command.words.end(), {"sh", "a b", "", "*"});
  command.input = "some input ";
  const auto result = ChildProcess(command).finish(kNoDeadline);
  EXPECT_EQ(result.end, ChildEnd::exited);
  EXPECT_EQ(result.code, 0);
  EXPECT_GT(result.wall_s, 0);
  EXPECT_EQ(output_, "some input [a b][][*]");
}

TEST_F(ChildProcesses, AreGivenTheirInputAlsoWithAGracePeriod) {
  auto command = shell("cat; ls /proc/self/fd | tr '\\n' ' '");
  command.input = "some input ";
  command.grace_s = 60;
  EXPECT_EQ(ChildProcess(command).finish(kNoDeadline).code, 0);
  const auto with_grace = output_;
  output_.clear();
  command.grace_s = 0;
  ChildProcess(command).finish(kNoDeadline);
  EXPECT_EQ(with_grace, output_) << "the child has the same open descriptors";
  EXPECT_TRUE(output_.starts_with("some input ")) << output_;
}

TEST_F(ChildProcesses, TheSignalThatEndedAChildIsReportedAlsoWithAGracePeriod) {
  for (const int sent : {SIGKILL, SIGSEGV, SIGTERM})
    for (const double grace_s : {0., 60.}) {
      auto command = shell("kill -" + std::to_string(sent) + " $$");
      command.grace_s = grace_s;
      const auto result = ChildProcess(command).finish(kNoDeadline);
      EXPECT_EQ(result.end, ChildEnd::signalled) << sent << " " << grace_s;
      EXPECT_EQ(result.code, sent) << grace_s;
    }
}

TEST_F(ChildProcesses, EachOutputReceivesTheDescriptorsGivenToIt) {
  std::string errors;
  auto command = shell("echo two >&2; echo one; echo five >&5");
  command.outputs.push_back({{2, 5}, [&](std::string_view text) {
                               errors += text;
                               return true;
                             }});
  EXPECT_EQ(ChildProcess(command).finish(kNoDeadline).code, 0);
  EXPECT_EQ(output_, "one\n");
  EXPECT_EQ(errors, "two\nfive\n");
}

TEST_F(ChildProcesses, InputMayBeLargerThanAPipeAndMayStayUnread) {
  auto command = shell("cat; echo done");
  command.input.assign(3 << 20, 'x');
  ChildProcess(command).finish(kNoDeadline);
  EXPECT_EQ(output_, command.input + "done\n");
  output_.clear();
  command = shell("exec <&-; echo unread");
  command.input.assign(3 << 20, 'x');
  EXPECT_EQ(ChildProcess(command).finish(kNoDeadline).code, 0);
  EXPECT_EQ(output_, "unread\n");
}

TEST_F(ChildProcesses, ResultHasTheExitStatusOrTheSignal) {
  const auto exited = ChildProcess(shell("exit 7")).finish(kNoDeadline);
  EXPECT_EQ(exited.end, ChildEnd::exited);
  EXPECT_EQ(exited.code, 7);
  for (const int number : {SIGKILL, SIGPIPE}) {  // The child does not inherit that this process ignores SIGPIPE.
    const auto killed = ChildProcess(shell("kill -" + std::to_string(number) + " $$")).finish(kNoDeadline);
    EXPECT_EQ(killed.end, ChildEnd::signalled);
    EXPECT_EQ(killed.code, number);
  }
}

TEST_F(ChildProcesses, AProgramThatCannotBeStartedIsAnErrorThatNamesIt) {
  EXPECT_CONTAINS(message_of<UsageError>([&] { ChildProcess({.words = {path("none")}}); }), "cannot start " + path("none"));
}

TEST_F(ChildProcesses, InheritOnlyTheDescriptorsGivenToThem) {
  const Pipe given, other;
  auto command = shell("ls /proc/$$/fd");
  command.inherited = {given.write_end()};
  ChildProcess(command).finish(kNoDeadline);
  EXPECT_CONTAINS("\n" + output_, "\n" + std::to_string(given.write_end()) + "\n");
  for (const int end : {given.read_end(), other.read_end(), other.write_end()})
    EXPECT_FALSE(contains("\n" + output_, "\n" + std::to_string(end) + "\n")) << output_;
}

TEST_F(ChildProcesses, TheProcessGroupEndsAtTheDeadline) {
  auto command = shell("sleep 300 & echo $! > " + path("grandchild") + "; echo begun; trap '' TERM; wait; sleep 300");
  const auto result = ChildProcess(command).finish(0.4);
  EXPECT_EQ(result.end, ChildEnd::deadline);
  EXPECT_GE(result.wall_s, 0.4);
  EXPECT_EQ(output_, "begun\n");
  EXPECT_TRUE(is_gone(pid_in(folder_, "grandchild")));
}

TEST_F(ChildProcesses, TheProcessGroupEndsWhenItsLeaderEnds) {
  ChildProcess(shell("sleep 300 & echo $! > " + path("grandchild"))).finish(kNoDeadline);
  EXPECT_TRUE(is_gone(pid_in(folder_, "grandchild")));
}

TEST_F(ChildProcesses, TheProcessGroupEndsWhenTheObjectIsDestroyed) {
  std::optional<ChildProcess> child(std::in_place, shell("sleep 300 & echo $! > " + path("grandchild") + "; sleep 300"));
  const auto grandchild = pid_in(folder_, "grandchild");
  EXPECT_TRUE(is_running(grandchild));
  child.reset();
  EXPECT_TRUE(is_gone(grandchild));
}

TEST_F(ChildProcesses, AChildThatWritesTooMuchIsEnded) {
  size_t received = 0;
  auto command = shell("exec yes");
  command.outputs[0].receive = [&](std::string_view text) { return (received += text.size()) < 1'000'000; };
  EXPECT_EQ(ChildProcess(command).finish(kNoDeadline).end, ChildEnd::flooded);
  EXPECT_GE(received, 1'000'000u);
  EXPECT_LT(received, 2'000'000u);
}

// This is how a build behaves: on SIGTERM cmake ends at once, but ninja, which is in the same process group, first ends its
// compilers, which are in process groups of their own.
TEST_F(ChildProcesses, DuringTheGracePeriodAGroupCanEndProcessesOfOtherGroups) {
  const auto script = "exec 2>/dev/null; " + start_in_another_group() + "(trap 'sleep 0.3; kill $(cat " + path("elsewhere") +
                      "); echo ended it; exit' TERM; while :; do sleep 0.01; done) & wait";
  auto command = shell(script);
  command.grace_s = 60;
  EXPECT_EQ(ChildProcess(command).finish(1).end, ChildEnd::deadline);
  EXPECT_EQ(output_, "ended it\n");
  EXPECT_TRUE(is_gone(pid_in(folder_, "elsewhere")));
}

TEST_F(ChildProcesses, AGroupThatIgnoresSigtermIsKilledAfterTheGracePeriod) {
  auto command = shell("trap '' TERM; sleep 300 & echo $! > " + path("grandchild") + "; while :; do sleep 0.05; done");
  command.grace_s = 0.3;
  EXPECT_EQ(ChildProcess(command).finish(0.2).end, ChildEnd::deadline);
  EXPECT_TRUE(is_gone(pid_in(folder_, "grandchild")));
}

// The grace period here would outlast the test. A child that ends by itself and leaves no process behind gets no SIGTERM either.
TEST_F(ChildProcesses, AChildThatEndsByItselfIsNotGivenAGracePeriod) {
  auto command = shell("trap 'echo was terminated' TERM; exec true");
  command.grace_s = 1e6;
  EXPECT_EQ(ChildProcess(command).finish(kNoDeadline).end, ChildEnd::exited);
  EXPECT_EQ(output_, "");
}

// The test forks, because a signal that was caught once stays recorded in the process.
TEST_F(ChildProcesses, AnInterruptEndsTheProcessGroupAndThrows) {
  for (const int sent : {SIGINT, SIGTERM})
    for (const double grace_s : {0., 60.}) {
      const auto driver = fork();
      if (driver == 0) {
        catch_interrupts();
        auto command = shell("sleep 300 & echo $! > " + path("grandchild") + "; wait");
        command.grace_s = grace_s;
        try {
          ChildProcess(command).finish(kNoDeadline);
        } catch (const Interrupted& interrupted) {
          _exit(interrupted.signal == sent && has_no_child() ? 42 : 1);
        } catch (...) {
        }
        _exit(2);
      }
      const auto grandchild = pid_in(folder_, "grandchild");
      kill(driver, sent);
      int status = 0;
      waitpid(driver, &status, 0);
      EXPECT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), 42);
      EXPECT_TRUE(is_gone(grandchild));
      std::filesystem::remove(path("grandchild"));
    }
}

}  // namespace
}  // namespace attnbench
