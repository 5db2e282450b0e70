// Tests of workers that take turns. The workers are threads of one process with pipes between them.
#include "harness/worker/timing/turns.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "harness/worker/timing/timing.h"
#include "tests/support/errors_of.h"

namespace attnbench {
namespace {

// Runs each of `workers` in a thread of its own. The worker with the index `first` has the first turn. If `processor` is not
// negative, all of them stay on that processor.
void take_turns(const std::vector<std::function<void(Turns&)>>& workers, size_t first = 0, int processor = -1) {
  std::vector<std::array<int, 2>> ring(workers.size());
  for (auto& ends : ring) ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  ASSERT_EQ(write(ring[first][1], "", 1), 1);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers.size(); ++i)
    threads.emplace_back([&, i] {
      Turns turns(ring[i][0], ring[(i + 1) % ring.size()][1], processor);
      workers[i](turns);
    });
  for (auto& thread : threads) thread.join();
}

TEST(Turns, GoRoundInOrderFromTheFirstWorker) {
  std::string order;
  const auto worker = [&](char name, int turns_taken) {
    return [&order, name, turns_taken](Turns& turns) {
      for (int i = 0; i < turns_taken && turns.await(); ++i) {
        order += name;
        turns.pass();
      }
    };
  };
  take_turns({worker('a', 3), worker('b', 3), worker('c', 3)}, 1);
  EXPECT_EQ(order, "bcabcabca");
  order.clear();
  take_turns({worker('a', 2), worker('b', 1000)});
  EXPECT_TRUE(order == "abab" || order == "ababb") << order << ": when one worker ends, the turns of the others are over";
}

TEST(Turns, NoTurnBeginsBeforeEveryWorkerAwaitsItsFirst) {
  bool late_is_ready = false;
  take_turns({[&](Turns& turns) {
                ASSERT_TRUE(turns.await());
                EXPECT_TRUE(late_is_ready);
              },
              [&](Turns& turns) {
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                late_is_ready = true;
                turns.await();
              }});
}

TEST(Turns, NoWorkerKeepsWaitingWhenAnotherEndsBeforeItsFirstTurn) {
  take_turns({[](Turns& turns) { EXPECT_FALSE(turns.await()); }, [](Turns&) {}});
}

TEST(Turns, WorkersStayOnTheirProcessor) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int processor = 0;
  while (!CPU_ISSET(processor, &before)) ++processor;
  const auto worker = [&](Turns& turns) {
    turns.await();
    cpu_set_t set;
    ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    EXPECT_EQ(CPU_COUNT(&set), 1);
    EXPECT_TRUE(CPU_ISSET(processor, &set));
  };
  take_turns({worker, worker}, 0, processor);
  take_turns({[](Turns& turns) {
               EXPECT_CONTAINS(message_of<std::runtime_error>([&] { turns.await(); }), "cannot stay on processor 100000");
             }},
             0, 100000);
}

// The first sample of a turn is left out of the median, because the caches then hold the data of other workers.
TEST(TakeSamples, WithTurnsASampleIsTheMedianOfATurn) {
  const std::vector<double> turn_ms = {100, 4, 1, 6};  // the last one ends the 10 ms of a turn
  size_t next = 0;
  const Stopwatch stopwatch = [&](const auto& work) {
    work();
    const double ms = next == 0 ? 1 : turn_ms[(next - 1) % 4];  // the first call is the warm-up
    ++next;
    return Elapsed{2 * ms / 1e3, ms / 1e3};
  };
  Samples samples;
  take_turns({[&](Turns& turns) { samples = take_samples({0, 3, 0.01, 0.3, 0, &turns}, stopwatch, [] {}, {}); }});
  EXPECT_EQ(samples.ms, (std::vector<double>{8, 8, 8}));
  EXPECT_EQ(samples.wall_ms, (std::vector<double>{4, 4, 4}));
  EXPECT_EQ(samples.stop_reason, "turns");
}

TEST(TakeSamples, WithTurnsAllWorkersEndWhenOneHasSpentItsBudget) {
  const auto worker = [](Samples& samples, double budget_s) {
    return [&samples, budget_s](Turns& turns) {
      const Stopwatch stopwatch = [](const auto& work) {
        work();
        return Elapsed{0.02, 0.02};
      };
      samples = take_samples({0, 1, 0, budget_s, 0, &turns}, stopwatch, [] {}, {});
    };
  };
  Samples a, b;
  take_turns({worker(a, 0.07), worker(b, 1e9)});
  EXPECT_EQ(a.ms.size(), 4u) << "a turn takes a single sample of a call that lasts longer than a turn";
  EXPECT_GE(b.ms.size(), 4u);
  EXPECT_LE(b.ms.size(), 5u);
}

// One turn of the other worker costs more than the whole budget; the median of a single turn would not be an estimate.
TEST(TakeSamples, WithTurnsTakesAtLeastTheMinNumberOfSamples) {
  const auto worker = [](Samples& samples, double call_s) {
    return [&samples, call_s](Turns& turns) {
      const Stopwatch stopwatch = [call_s](const auto& work) {
        work();
        return Elapsed{call_s, call_s};
      };
      samples = take_samples({0, 5, 0, 0.1, 0, &turns}, stopwatch, [] {}, {});
    };
  };
  Samples fast, slow;
  take_turns({worker(fast, 0.001), worker(slow, 2)});
  EXPECT_GE(fast.ms.size(), 5u);
  EXPECT_EQ(slow.ms.size(), 5u);
}

TEST(TakeSamples, ThrowsWithoutASingleTurn) {
  take_turns({[](Turns& turns) {
                EXPECT_CONTAINS(message_of<std::runtime_error>([&] {
                                  take_samples({0, 1, 0, 1, 0, &turns}, time_on_host, [] {}, {});
                                }),
                                "takes turns with has ended");
              },
              [](Turns&) {}});
}

TEST(TakeRounds, WithTurnsASampleIsTheMedianOfTheStepsOfATurn) {
  int begun = 0, steps = 0;
  Samples samples;
  const Stopwatch stopwatch = [&](const auto& work) {
    work();
    const double s = steps % 4 == 1 ? 1 : 1e-3;  // the first of the four steps, which warms up, is slow
    return Elapsed{s, s};
  };
  take_turns({[&](Turns& turns) {
                samples = take_rounds(
                    {0, 1, 0, 1e9, 0, &turns}, stopwatch, {1, 3},
                    [&] {
                      ++begun;
                      std::this_thread::sleep_for(std::chrono::microseconds(200));
                    },
                    [&] { ++steps; }, {});
              },
              [](Turns& turns) {
                for (int i = 0; i < 3 && turns.await(); ++i) turns.pass();
              }});
  EXPECT_GE(samples.ms.size(), 2u);
  EXPECT_LE(samples.ms.size(), 3u);
  EXPECT_EQ(steps, 4 * begun);
  for (const auto ms : samples.ms) EXPECT_DOUBLE_EQ(ms, 1);
  EXPECT_GT(begun, int(samples.ms.size()) + 1) << "turns take rounds for 10 ms, and the first turn only warms up";
  EXPECT_EQ(samples.stop_reason, "turns");
}

}  // namespace
}  // namespace attnbench
