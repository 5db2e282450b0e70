// Tests of running cases, with shell scripts as workers: every way in which a worker can end becomes one record, and no process
// is left running.
#include "harness/sweep/case_runner.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "harness/process/interrupts.h"
#include "harness/statistics/disturbance.h"
#include "harness/statistics/statistics.h"
#include "harness/sweep/case_plans.h"
#include "harness/sweep/process_records.h"
#include "harness/text/errors.h"
#include "tests/support/errors_of.h"
#include "tests/support/processes.h"
#include "tests/support/test_ceilings.h"

namespace attnbench {
namespace {

const std::string kMeasured = R"(echo '{"outcome": "measured", "time_samples_ms": [3, 1, 2, 5, 4], "samples": 5}' >&3)";

class CaseRunner : public testing::Test {
 protected:
  CaseRunner() {
    signal(SIGPIPE, SIG_IGN);  // The driver ignores it too.
    case_.method = "linear";
    case_.batch = 4;
    case_.deadline_s = 20;
    case_.complete();
    environment_.set("revision", "abc");
  }
  // No child process may be left, not even a zombie.
  ~CaseRunner() override { EXPECT_TRUE(has_no_child()); }

  void use_worker(const std::string& commands) { worker_.path = folder_.write_script("worker", commands); }
  Record run(const std::string& commands) {
    use_worker(commands);
    return run_case(worker_, {{case_, Record(case_)}}, environment_, std::nullopt);
  }
  // Runs the case with a worker that makes it fail.
  Record failure(const std::string& commands, const char* failure_kind) {
    const auto record = run(commands);
    EXPECT_EQ(record.text("outcome"), "failed");
    EXPECT_EQ(record.text("failure_kind"), failure_kind) << record.text("reason");
    // Every failure gives a complete record of this case.
    EXPECT_EQ(record.key(), Record(case_).key());
    EXPECT_EQ(record.text("revision"), "abc");
    EXPECT_FALSE(record.text("finished_at").empty());
    EXPECT_FALSE(record.has("time_median_ms"));
    EXPECT_NO_THROW(Record::parse(Json::parse(record.to_json().dump(-1, ' ', false, Json::error_handler_t::replace))));
    return record;
  }
  pid_t pid_in(const std::string& name) const { return attnbench::pid_in(folder_, name); }
  std::string path(const std::string& name) const { return folder_.path(name); }

  TempFolder folder_;
  WorkerProgram worker_;
  Case case_;
  Record environment_;
};

TEST_F(CaseRunner, AnAnswerBecomesARecordWithStatistics) {
  const auto record = run("cat > " + path("request") + "; echo \"$@\" > " + path("arguments") + "; " + kMeasured);
  EXPECT_TRUE(record.measured()) << record.text("reason");
  EXPECT_EQ(record.number("time_median_ms"), 3);
  EXPECT_EQ(record.number("time_q1_ms"), 2);
  EXPECT_EQ(record.number("time_q3_ms"), 4);
  EXPECT_EQ(record.number("time_per_sample_ms"), 0.75);
  EXPECT_LE(record.number("time_ci_low_ms"), 3);
  EXPECT_GE(record.number("time_ci_high_ms"), 3);
  EXPECT_EQ(record.get("time_samples_ms"), Json::array({3, 1, 2, 5, 4}));
  EXPECT_GT(record.number("worker_s"), 0);
  EXPECT_EQ(record.text("revision"), "abc");
  EXPECT_EQ(record.key(), Record(case_).key());
  const auto when = record.text("finished_at");
  EXPECT_EQ(when.size(), std::string("2026-01-31T12:34:56Z").size()) << when;
  EXPECT_EQ(to_json(case_from_json(Json::parse(folder_.read("request")))), to_json(case_));
  EXPECT_EQ(folder_.read("arguments"), "--answer-fd=3 measure --quality\n");
}

// A worker of an older build refuses a case with a field that it does not know.
TEST(PortableRequest, LeavesOutNewerAxesThatFollowOthers) {
  Case c;
  c.method = "linear";
  c.heads = 6;
  c.complete();
  const auto request = portable_request(c);
  EXPECT_FALSE(request.contains("kv_heads") || request.contains("value_heads"));
  EXPECT_EQ(to_json(case_from_json(request)).at("kv_heads"), 6);
  c.kv_heads = c.value_heads = 2;
  const auto shared = portable_request(c);
  EXPECT_EQ(shared.at("kv_heads"), 2);
  EXPECT_FALSE(shared.contains("value_heads"));
  EXPECT_EQ(to_json(case_from_json(shared)).at("value_heads"), 2);
}

// A worker of an older build knows the former names of options alone.
TEST(PortableRequest, HasTheFormerNamesOfOptions) {
  Case c;
  c.method = "linear:implementation=avx2";
  c.baseline = "favor:composed_chunk=7";
  c.complete();
  const auto request = portable_request(c);
  EXPECT_EQ(request.at("method"), "linear:kernel=avx2");
  EXPECT_EQ(request.at("baseline"), "favor:chunk=7");
  EXPECT_EQ(to_json(case_from_json(request)), to_json(c));
}

TEST_F(CaseRunner, AFailureThatTheWorkerReportsIsRecorded) {
  const auto record = failure(R"(echo '{"outcome": "failed", "failure_kind": "oom", "reason": "asked for 5 bytes"}' >&3)", "oom");
  EXPECT_EQ(record.text("reason"), "asked for 5 bytes");
}

TEST_F(CaseRunner, AWorkerKilledByASignalIsACrash) {
  const auto record = failure("echo about to fall >&2; kill -SEGV $$", "crashed");
  EXPECT_CONTAINS(record.text("reason"), "signal 11");
  EXPECT_CONTAINS(record.text("reason"), "about to fall");
  EXPECT_CONTAINS(failure("kill -KILL $$", "crashed").text("reason"), "signal 9");
  // This holds after a complete answer too, because what killed the worker may have made the answer wrong.
  EXPECT_CONTAINS(failure(kMeasured + "; kill -ABRT $$", "crashed").text("reason"), "signal 6");
}

TEST_F(CaseRunner, AWorkerWithAnExitCodeIsACrash) {
  EXPECT_CONTAINS(failure("echo cannot >&2; exit 3", "crashed").text("reason"), "exit code 3; it said: cannot");
  EXPECT_CONTAINS(failure(kMeasured + "; exit 2", "crashed").text("reason"), "exit code 2");
}

TEST_F(CaseRunner, AHangingWorkerIsEndedAtItsDeadlineWithItsWholeProcessGroup) {
  case_.deadline_s = 0.4;
  const auto record = failure("sleep 300 & echo $! > " + path("grandchild") + "; echo $$ > " + path("child") +
                                  "; echo waiting; sleep 300; touch " + path("survived"),
                              "timeout");
  EXPECT_CONTAINS(record.text("reason"), "deadline of 0.4 s");
  EXPECT_CONTAINS(record.text("reason"), "waiting");
  EXPECT_GE(record.number("worker_s"), 0.4);
  EXPECT_TRUE(is_gone(pid_in("child")));
  EXPECT_TRUE(is_gone(pid_in("grandchild")));
  EXPECT_FALSE(folder_.has("survived")) << "the worker must be ended at its deadline, and not be waited for";
}

TEST_F(CaseRunner, AHangingWorkerWithClosedStreamsIsEndedToo) {
  case_.deadline_s = 0.4;
  failure("exec 0<&- 1>&- 2>&- 3>&-; sleep 300 & echo $! > " + path("grandchild") + "; sleep 300", "timeout");
  EXPECT_TRUE(is_gone(pid_in("grandchild")));
}

TEST_F(CaseRunner, AWorkerThatIgnoresSigtermIsKilled) {
  case_.deadline_s = 0.4;
  failure("trap '' TERM INT HUP; echo $$ > " + path("child") + "; while :; do sleep 0.1; done", "timeout");
  EXPECT_TRUE(is_gone(pid_in("child")));
}

TEST_F(CaseRunner, AnAnswerBeforeAHangGivesNoTime) {
  case_.deadline_s = 0.4;
  failure(kMeasured + "; sleep 300", "timeout");
}

TEST_F(CaseRunner, AGrandchildDoesNotOutliveTheWorker) {
  const auto record = run("sleep 300 & echo $! > " + path("grandchild") + "; " + kMeasured);
  EXPECT_TRUE(record.measured()) << record.text("reason");
  EXPECT_TRUE(is_gone(pid_in("grandchild")));
}

// The grandchild keeps the worker's pipes open, and it does not end with the worker's process group.
TEST_F(CaseRunner, TheDriverDoesNotWaitForAGrandchildThatLeftTheGroup) {
  const auto record = run("setsid sh -c 'echo $$ > " + path("grandchild") + "; exec sleep 300' & while [ ! -s " +
                          path("grandchild") + " ]; do sleep 0.01; done; " + kMeasured);
  EXPECT_TRUE(record.measured()) << record.text("reason");
  EXPECT_TRUE(is_running(pid_in("grandchild"))) << "the driver must not wait for the grandchild to end";
  kill(pid_in("grandchild"), SIGKILL);
}

// The worker has answered and ended. A grandchild that keeps writing must not turn this into a timeout.
TEST_F(CaseRunner, TheDriverDoesNotWaitForAGrandchildThatKeepsWriting) {
  case_.deadline_s = 3;
  const auto record = run("yes still here & echo $! > " + path("grandchild") + "; " + kMeasured);
  EXPECT_TRUE(record.measured()) << record.text("reason");
  EXPECT_TRUE(is_gone(pid_in("grandchild")));
}

// Here the grandchild that keeps writing does not end with the worker's process group either.
TEST_F(CaseRunner, TheDriverDoesNotWaitForAGrandchildThatLeftTheGroupAndKeepsWriting) {
  case_.deadline_s = 1;
  const auto record = run("setsid sh -c 'echo $$ > " + path("grandchild") + "; exec yes' & while [ ! -s " + path("grandchild") +
                          " ]; do sleep 0.01; done; " + kMeasured);
  EXPECT_TRUE(record.measured()) << record.text("reason");
  EXPECT_TRUE(is_gone(pid_in("grandchild"))) << "SIGPIPE ends it, because nobody reads its output";
}

TEST_F(CaseRunner, NoAnswerIsAProtocolFailure) {
  EXPECT_CONTAINS(failure("exit 0", "protocol").text("reason"), "0 answers, expected 1");
  // Standard output is not read for answers, because libraries print to it.
  EXPECT_CONTAINS(failure(R"(echo '{"outcome": "measured"}')", "protocol").text("reason"),
                  "0 answers, expected 1; it said: {\"outcome\"");
}

TEST_F(CaseRunner, SeveralAnswersAreAProtocolFailure) {
  EXPECT_CONTAINS(failure(kMeasured + "; " + kMeasured, "protocol").text("reason"), "2 answers, expected 1");
}

TEST_F(CaseRunner, AnIncompleteAnswerIsAProtocolFailure) {
  failure(R"(printf '{"outcome": "measured", "samp' >&3)", "protocol");
  failure(R"(printf '{"outcome": "measured"}' >&3)", "protocol");  // The line end is missing.
}

TEST_F(CaseRunner, AnAnswerThatIsNotARecordIsAProtocolFailure) {
  EXPECT_CONTAINS(failure("echo nonsense >&3", "protocol").text("reason"), "not JSON: nonsense");
  failure("head -c 100000 /dev/urandom >&3; echo >&3", "protocol");
  failure(kMeasured + "; echo rubbish >&3", "protocol");
  failure("echo '[1]' >&3", "protocol");
  failure("echo 3 >&3", "protocol");
  failure("echo '{}' >&3", "protocol");
  failure(R"(echo '{"outcome": null}' >&3)", "protocol");
  EXPECT_CONTAINS(failure(R"(echo '{"outcome": "measured", "speed": 3}' >&3)", "protocol").text("reason"), "no column 'speed'");
  EXPECT_CONTAINS(failure(R"(echo '{"outcome": 3}' >&3)", "protocol").text("reason"), "column outcome = 3, expected text");
}

TEST_F(CaseRunner, AnUnknownOutcomeIsAProtocolFailure) { failure(R"(echo '{"outcome": "splendid"}' >&3)", "protocol"); }

// A case that is recorded as measured is not run again, so it must have samples.
TEST_F(CaseRunner, AMeasurementWithoutSamplesIsAProtocolFailure) {
  failure(R"(echo '{"outcome": "measured"}' >&3)", "protocol");
  failure(R"(echo '{"outcome": "measured", "time_samples_ms": []}' >&3)", "protocol");
}

// Reading stops at a limit.
TEST_F(CaseRunner, AnEndlessAnswerIsAProtocolFailure) { failure("yes >&3", "protocol"); }

TEST_F(CaseRunner, TheReasonContainsTheEndOfLongDiagnostics) {
  const auto long_diagnostics = "head -c 20000000 /dev/zero | tr '\\0' x >&2; echo the end >&2; ";
  EXPECT_TRUE(run(long_diagnostics + kMeasured).measured());
  const auto reason = failure(long_diagnostics + std::string("exit 1"), "crashed").text("reason");
  EXPECT_TRUE(reason.ends_with("xxx\nthe end") || reason.ends_with("xthe end")) << reason.substr(reason.size() - 60);
  EXPECT_LT(reason.size(), 10000u);
  EXPECT_GT(reason.size(), 2000u);
}

// The workers are two shell scripts that write down whose turn it is. Their third argument is "--turns=A,B", with the descriptors
// that a turn is read from and passed to.
TEST_F(CaseRunner, WorkersTakeTurnsInTheGivenOrder) {
  const auto side = [&](const std::string& name, const std::string& more) {
    const auto commands =
        "turns=${3#--turns=}; from=/proc/self/fd/${turns%,*}; to=/proc/self/fd/${turns#*,}\n"
        "for i in 1 2 3; do head -c1 $from >/dev/null; echo " +
        name + " >>" + path("order") + "; [ " + name + "$i = a3 ] || printf x >$to; done\n" + more;
    return CaseOfBuild{{folder_.write_script(name, commands)}, case_};
  };
  const auto records = run_in_turns({side("b", kMeasured), side("a", kMeasured)}, 0);
  ASSERT_EQ(records.size(), 2u);
  for (const auto& record : records) EXPECT_TRUE(record.measured()) << record.text("reason");
  EXPECT_EQ(folder_.read("order"), "b\na\nb\na\nb\na\n");
}

TEST_F(CaseRunner, AWorkerDoesNotWaitForItsTurnWhenTheOtherDies) {
  const auto waits =
      folder_.write_script("waits", "turns=${3#--turns=}; cat /proc/self/fd/${turns%,*} >/dev/null; " + std::string(kMeasured));
  const auto dies = folder_.write_script("dies", "kill -SEGV $$");
  const auto records = run_in_turns({{{waits}, case_}, {{dies}, case_}}, 0);
  EXPECT_TRUE(records[0].measured()) << "it must not wait until its deadline";
  EXPECT_EQ(records[1].text("failure_kind"), "crashed");
}

// ------------------------------------------------------------ baselines

// The samples of a case are 3, 1, 2, 5, 4 ms, and those of its baseline, whose request names the method sdpa, are half of them.
class Baseline : public CaseRunner {
 protected:
  Baseline() {
    case_.baseline = "sdpa";
    measured_ = {{case_, Record(case_)}, PlannedCase{*baseline_of(case_), Record(*baseline_of(case_))}};
  }
  // A worker that runs these commands if it is asked for the baseline, and otherwise measures the case.
  void use_baseline(const std::string& commands) {
    use_worker("echo \"$@\" >> " + path("arguments") + "; if grep -q '\"method\":\"sdpa\"'; then " + commands + "; else " +
               kMeasured + "; fi");
  }
  Record run_with_baseline(const std::string& commands, const ProcessOptions& options = {}) {
    use_baseline(commands);
    return run_process(worker_, measured_, options);
  }
  size_t runs() { return size_t(std::ranges::count(folder_.read("arguments"), '\n')); }

  MeasuredCase measured_;
};

const std::string kHalf = R"(echo '{"outcome": "measured", "time_samples_ms": [1.5, 0.5, 1, 2.5, 2], "samples": 5}' >&3)";

TEST_F(Baseline, TakesTurnsWithTheCaseAndGivesItARatio) {
  const auto record = run_with_baseline(kHalf);
  EXPECT_EQ(record.text("ratio_pairing"), "turns") << record.text("reason");
  EXPECT_EQ(record.number("ratio_median"), 2);
  EXPECT_EQ(record.number("time_median_ms"), 3);
  EXPECT_EQ(record.number("baseline_median_ms"), 1.5);
  EXPECT_EQ(record.get("baseline_samples_ms"), Json::array({1.5, 0.5, 1, 2.5, 2}));
  EXPECT_CONTAINS(folder_.read("arguments"), "--turns=");
}

TEST_F(Baseline, RunsAfterTheCaseIfBothDoNotFitIntoTheMemory) {
  for (auto* planned : {&measured_.planned, &measured_.baseline->planned}) {
    planned->set("predicted_peak_bytes", 600.0);
    planned->set("memory_limit_bytes", 1000);
  }
  const auto record = run_with_baseline(kHalf);
  EXPECT_EQ(record.text("ratio_pairing"), "processes") << record.text("reason");
  EXPECT_EQ(record.number("ratio_median"), 2);
  EXPECT_EQ(folder_.read("arguments").find("--turns"), std::string::npos);
  EXPECT_EQ(runs(), 2u);
}

TEST_F(Baseline, ThatFailsDoesNotFailTheCase) {
  const auto record = run_with_baseline("kill -SEGV $$");
  EXPECT_TRUE(record.measured()) << record.text("reason");
  EXPECT_EQ(record.number("time_median_ms"), 3);
  EXPECT_FALSE(record.has("ratio_pairing"));
  EXPECT_EQ(record.text("ratio_failure_kind"), kind::crashed);
  EXPECT_CONTAINS(record.text("ratio_reason"), "the worker died of signal 11");
  EXPECT_FALSE(record.has("ratio_median"));
}

// A worker that takes turns reports an error if the others end before its first turn.
TEST_F(Baseline, ThatFailsBeforeTheFirstTurnLetsTheCaseRunAlone) {
  use_worker(
      "if grep -q '\"method\":\"sdpa\"'; then kill -SEGV $$; fi; case \"$@\" in *--turns*) echo '{\"outcome\": \"failed\", "
      "\"failure_kind\": \"error\", \"reason\": \"the other has ended\"}' >&3;; *) " +
      kMeasured + ";; esac");
  const auto record = run_process(worker_, measured_, {});
  EXPECT_TRUE(record.measured()) << record.text("reason");
  EXPECT_EQ(record.text("ratio_failure_kind"), kind::crashed);
}

// Both processes share the deadline, so the case times out with its baseline, and is then measured alone.
TEST_F(Baseline, ThatHangsDoesNotFailTheCase) {
  measured_.c.deadline_s = measured_.baseline->c.deadline_s = 0.5;
  use_worker("case \"$@\" in *--turns*) sleep 300;; *) " + kMeasured + ";; esac");
  const auto record = run_process(worker_, measured_, {});
  EXPECT_TRUE(record.measured()) << record.text("reason");
  EXPECT_EQ(record.text("ratio_failure_kind"), kind::timeout);
}

// A case may fail beside its baseline only, for example because both do not fit into the memory after all.
TEST_F(Baseline, ACaseThatFailsBesideItIsMeasuredAlone) {
  use_worker("case \"$@\" in *--turns*) if grep -q '\"method\":\"sdpa\"'; then " + kHalf + "; else kill -KILL $$; fi;; *) " +
             kMeasured + ";; esac");
  const auto record = run_process(worker_, measured_, {});
  EXPECT_TRUE(record.measured()) << record.text("reason");
  EXPECT_EQ(record.text("ratio_failure_kind"), kind::crashed);
  EXPECT_CONTAINS(record.text("ratio_reason"), "beside the baseline, the case failed: the worker died of signal 9");
}

TEST_F(Baseline, ThatCannotRunLeavesTheCaseAlone) {
  measured_.baseline->planned.set_skipped(kind::unsupported, "no such form");
  const auto record = run_with_baseline(kHalf);
  EXPECT_FALSE(record.has("ratio_pairing"));
  EXPECT_EQ(record.text("ratio_failure_kind"), kind::unsupported);
  EXPECT_EQ(record.text("ratio_reason"), "no such form");
  EXPECT_EQ(runs(), 1u);
  const auto why = why_no_baseline(record);
  ASSERT_TRUE(why);
  EXPECT_EQ(why->kind, kind::unsupported);
  EXPECT_EQ(why->reason, "no such form");
  EXPECT_FALSE(why->may_pass());
}

TEST_F(Baseline, ThatIsPredictedToExceedItsDeadlineMayRunLater) {
  measured_.baseline->planned.set_skipped(kind::predicted_timeout, "oom: in whatever words");
  const auto why = why_no_baseline(run_with_baseline(kHalf));
  ASSERT_TRUE(why);
  EXPECT_TRUE(why->may_pass());
}

TEST_F(Baseline, ThatFailedInAnEarlierProcessDoesNotRunAgain) {
  const auto record = run_with_baseline(kHalf, {.no_baseline = NoBaseline{kind::oom, "no memory"}});
  EXPECT_EQ(record.text("ratio_failure_kind"), kind::oom);
  EXPECT_EQ(record.text("ratio_reason"), "no memory");
  EXPECT_EQ(runs(), 1u);
  EXPECT_FALSE(why_no_baseline(run_with_baseline(kHalf)));
}

TEST_F(Baseline, ThatFailsInOneOfSeveralProcessesLeavesTheRatioOfTheOthers) {
  const auto without = run_with_baseline("kill -SEGV $$"), with = run_with_baseline(kHalf);
  const auto record = record_of_processes({with, without}, 2, std::nullopt);
  EXPECT_EQ(record.number("ratio_median"), 2);
  EXPECT_EQ(record.text("ratio_pairing"), "turns");
  EXPECT_EQ(record.text("ratio_failure_kind"), kind::crashed);
  EXPECT_CONTAINS(record.text("ratio_reason"), "signal 11");
}

TEST_F(Baseline, DisturbedSamplesOfEitherSideDoNotCountInTheRatio) {
  const auto record = run_with_baseline(
      R"(echo '{"outcome": "measured", "time_samples_ms": [1.5, 0.1, 1, 2.5, 0.1], "sample_disturbances": [0, 1, 0, 0, 1], "samples": 5}' >&3)");
  EXPECT_EQ(record.number("ratio_median"), 2);
  EXPECT_EQ(record.get("disturbed_processes"), 0);
}

// ------------------------------------------------------------ several processes

Record process_with(const Case& c, const std::vector<double>& samples, const std::vector<double>& shares, double ratio) {
  Record record(c);
  record.set("outcome", outcome::measured);
  record.set("time_samples_ms", samples);
  record.set("sample_disturbances", shares);
  const auto counts = counted(samples, shares, c.max_disturbance);
  record.set("time_median_ms", median(counts.values));
  record.set("time_q1_ms", median(counts.values) - 1);
  record.set("disturbed_processes", counts.all ? 1 : 0);
  record.set("samples", int64_t(samples.size()));
  record.set("ratio_median", ratio);
  return record;
}

TEST_F(CaseRunner, DisturbedProcessesDoNotCountOnceOthersHaveReplacedThem) {
  std::vector<Record> processes;
  for (int i = 1; i <= 3; ++i) processes.push_back(process_with(case_, {1.0 * i, 1.0 * i, 1.0 * i}, {0, 0, 0}, i));
  processes.insert(processes.begin(), process_with(case_, {100, 100, 100}, {1, 1, 1}, 100));
  for (size_t i = 0; i < processes.size(); ++i) processes[i].set("round", int64_t(i) + 1);
  const auto replaced = record_of_processes(processes, 3, std::nullopt);
  EXPECT_EQ(replaced.get("process_medians_ms"), Json::array({1, 2, 3}));
  EXPECT_EQ(replaced.get("process_ratios"), Json::array({1, 2, 3}));
  EXPECT_EQ(replaced.get("process_q1_ms"), Json::array({0, 1, 2}));
  EXPECT_EQ(replaced.get("process_rounds"), Json::array({2, 3, 4}));
  EXPECT_EQ(replaced.number("time_median_ms"), 2);
  EXPECT_EQ(replaced.number("ratio_median"), 2);
  EXPECT_EQ(replaced.get("disturbed_processes"), 1);
  EXPECT_EQ(replaced.get("samples"), 12) << "no sample is dropped from the record";
  EXPECT_EQ(replaced.get("time_samples_ms").size(), 12u);
  const auto too_few = record_of_processes(processes, 4, std::nullopt);
  EXPECT_EQ(too_few.get("process_medians_ms").size(), 4u);
}

TEST_F(CaseRunner, TheEstimateLeavesDisturbedSamplesOut) {
  const auto record = run(
      R"(echo '{"outcome": "measured", "time_samples_ms": [3, 30, 1, 2, 40], "sample_disturbances": [0, 0.5, 0.1, 0, 2], "samples": 5}' >&3)");
  EXPECT_EQ(record.number("time_median_ms"), 2);
  EXPECT_EQ(record.get("disturbed_samples"), 2);
  EXPECT_EQ(record.get("disturbed_processes"), 0);
  EXPECT_EQ(record.get("time_samples_ms").size(), 5u);
  EXPECT_EQ(record.text("time_ci_scope"), "spread within process");
}

TEST_F(CaseRunner, ManyPageFaultsAreSuspectWhereMemoryIsKept) {
  const std::string faults =
      R"(echo '{"outcome": "measured", "time_samples_ms": [3, 1, 2], "page_faults_per_call": 1e6, "system_share": 0.4, "samples": 3}' >&3)";
  EXPECT_EQ(run(faults).text("suspect"),
            "1000000 page faults a call and 40 % of the processor time in the system, although memory is kept between calls");
  EXPECT_FALSE(run(kMeasured).has("suspect"));
  case_.allocation = "fresh";
  EXPECT_FALSE(run(faults).has("suspect"));
}

TEST_F(CaseRunner, AWorkerThatCannotBeStartedIsAnErrorThatNamesIt) {
  worker_.path = path("none");
  EXPECT_CONTAINS(message_of<UsageError>([&] {
                    run_case(worker_, {{case_, Record(case_)}}, environment_, std::nullopt);
                  }),
                  "cannot start " + path("none"));
  folder_.write("not-executable", "");
  worker_.path = path("not-executable");
  EXPECT_CONTAINS(message_of<UsageError>([&] {
                    run_case(worker_, {{case_, Record(case_)}}, environment_, std::nullopt);
                  }),
                  "cannot start");
}

TEST_F(CaseRunner, PlansAreMergedWithTheirCases) {
  auto other = case_;
  other.query_len = 77;
  use_worker(
      R"(echo '{"flops": 10}' >&3; echo '{"outcome": "skipped", "failure_kind": "unsupported", "reason": "no causal form"}' >&3)");
  const auto planned = plan_cases(worker_, {case_, other});
  ASSERT_EQ(planned.size(), 2u);
  EXPECT_EQ(planned[0].number("flops"), 10);
  EXPECT_EQ(planned[0].key(), Record(case_).key());
  EXPECT_EQ(planned[1].get("query_len"), 77);
  EXPECT_EQ(planned[1].text("reason"), "no causal form");
}

TEST_F(CaseRunner, APlanThatReportsAnInvalidCaseIsAUsageError) {
  use_worker(R"(echo '{"outcome": "failed", "failure_kind": "usage", "reason": "linear: chunk = 0"}' >&3)");
  EXPECT_EQ(message_of<UsageError>([&] { plan_cases(worker_, {case_}); }), "linear: chunk = 0");
  use_worker(R"(echo '{"outcome": "failed", "failure_kind": "unknown_method", "reason": "no such method"}' >&3)");
  EXPECT_EQ(message_of<UsageError>([&] { plan_cases(worker_, {case_}); }), "no such method");
}

TEST_F(CaseRunner, TheOriginOfARefusalIsThatOfTheFieldThatThePlanNames) {
  use_worker(
      R"(echo '{"outcome": "failed", "failure_kind": "usage", "failure_field": "key_len", "reason": "method = batch = 0"}' >&3)");
  const auto origin_of = [](const Case&, const std::string& field) { return "the " + field; };
  EXPECT_EQ(message_of<UsageError>([&] { plan_cases(worker_, {case_}, origin_of); }), "the key_len: method = batch = 0");
}

TEST_F(CaseRunner, AFailureToPlanIsAnErrorThatNamesTheMethod) {
  const auto said = [&](const std::vector<Case>& cases) { return message_of<WorkerError>([&] { plan_cases(worker_, cases); }); };
  use_worker(R"(echo '{"outcome": "failed", "failure_kind": "error", "reason": "no cost"}' >&3)");
  EXPECT_EQ(said({case_}), "method 'linear' broke while its cost was predicted: no cost");
  use_worker(R"(echo '{"outcome": 3}' >&3)");
  EXPECT_CONTAINS(said({case_}), "method 'linear' broke while its cost was predicted: column outcome = 3");
  use_worker(R"(echo '{}' >&3; echo lost >&2)");
  EXPECT_CONTAINS(said({case_, case_}),
                  "worker plan` broke on method 'linear': the worker gave 1 answer, expected 2; it said: lost");
  use_worker("echo broken >&2; exit 2");
  EXPECT_CONTAINS(said({case_}), "worker plan` broke on method 'linear': the worker ended with exit code 2; it said: broken");
}

TEST_F(CaseRunner, AnEnvironmentThatIsNotARecordIsAnErrorOfTheWorker) {
  use_worker(R"(echo '{"no_such_column": 3}' >&3)");
  EXPECT_CONTAINS(message_of<WorkerError>([&] { ask_environment(worker_); }), "no_such_column");
}

TEST_F(CaseRunner, PredictedFailuresStartNoWorker) {
  use_worker("touch " + path("started") + "; " + kMeasured);
  const TimePredictor predictor(kCeilings);
  Record huge(case_), slow(case_), fine(case_);
  huge.set("predicted_peak_bytes", double(case_.memory_limit_bytes) * 1.01);
  slow.set("flops", 1e15);
  slow.set("min_bytes", 1.0);
  fine.set("flops", 1e9);
  fine.set("min_bytes", 1e6);
  fine.set("predicted_peak_bytes", double(case_.memory_limit_bytes) * 0.99);
  for (auto* record : {&huge, &slow, &fine}) predict(*record, predictor);
  EXPECT_EQ(huge.text("failure_kind"), "predicted_oom");
  EXPECT_CONTAINS(huge.text("reason"), "by prediction, but its memory budget is");
  EXPECT_EQ(slow.text("failure_kind"), "predicted_timeout");
  EXPECT_CONTAINS(slow.text("reason"), "its deadline is 20 s");
  EXPECT_FALSE(fine.has("outcome"));
  for (const auto& planned : {huge, slow}) {
    const auto record = run_case(worker_, {{case_, planned}}, environment_, std::nullopt);
    EXPECT_EQ(record.text("outcome"), "skipped");
    EXPECT_EQ(record.text("failure_kind"), planned.text("failure_kind"));
    EXPECT_EQ(record.text("revision"), "abc");
    EXPECT_FALSE(record.text("finished_at").empty());
    EXPECT_FALSE(record.has("worker_s"));
    EXPECT_FALSE(folder_.has("started"));
  }
  EXPECT_TRUE(run_case(worker_, {{case_, fine}}, environment_, std::nullopt).measured());
  EXPECT_TRUE(folder_.has("started"));
}

TEST_F(CaseRunner, ImplausibleTimesAreMarked) {
  use_worker(kMeasured);  // The median of its samples is 3 ms.
  const auto with = [&](const char* dtype, double flops, double bytes) {
    auto c = case_;
    c.dtype = dtype;
    Record planned(c);
    planned.set("flops", flops);
    planned.set("min_bytes", bytes);
    return run_case(worker_, {{c, planned}}, environment_, kCeilings).text("implausible");
  };
  // In 3 ms the ceilings allow 3e8 operations (100 GFLOP/s) and 6e7 bytes (20 GB/s). The bandwidth is a limit only for more than
  // array_bytes (1e8), because caches can hold less than that.
  EXPECT_EQ(with("float32", 2.9e8, 1e6), "");
  EXPECT_CONTAINS(with("float32", 4e8, 1e6),
                  "3.00 ms is below the 4.00 ms that the measured arithmetic rate of 100 GFLOP/s allows");
  EXPECT_CONTAINS(with("float64", 2e8, 1e6), "rate of 50 GFLOP/s");
  EXPECT_EQ(with("bfloat16", 1e12, 1e6), "");
  EXPECT_EQ(with("float32", 1, 9e7), "");
  EXPECT_CONTAINS(with("float32", 1, 1.1e8), "3.00 ms is below the 5.50 ms that the measured bandwidth of 20.0 GB/s allows");
}

TEST_F(CaseRunner, EachDeviceHasItsOwnCeilings) {
  use_worker(kMeasured);  // The median of its samples is 3 ms.
  const auto with = [&](const char* dtype, double flops, double bytes, const Json& gpu) {
    auto c = case_;
    c.device = "cuda";
    c.dtype = dtype;
    Record planned(c);
    planned.set("flops", flops);
    planned.set("min_bytes", bytes);
    return run_case(worker_, {{c, planned}}, environment_, Ceilings::from_json(with_gpu(gpu))).text("implausible");
  };
  EXPECT_EQ(with("bfloat16", 2.9e11, 1, kGpuCeilings), "");
  EXPECT_CONTAINS(with("bfloat16", 4e11, 1, kGpuCeilings), "rate of 100000 GFLOP/s");
  EXPECT_EQ(with("float32", 1e15, 1, kGpuCeilings), "") << "the rate of float32 was not measured on this GPU";
  EXPECT_EQ(with("float32", 1, 5.9e9, kGpuCeilings), "");
  EXPECT_CONTAINS(with("float32", 1, 8e9, kGpuCeilings), "bandwidth of 2000.0 GB/s");
  EXPECT_EQ(with("bfloat16", 1e15, 1e15, {{"unavailable", "none here"}}), "");
}

// A case on a GPU that sets no memory budget gets that of the plan: the worker sets it to the memory of the GPU.
TEST_F(CaseRunner, ACaseWithoutAMemoryBudgetGetsThatOfItsPlan) {
  use_worker("cat > " + folder_.path("request") +
             R"(; echo '{"outcome": "failed", "failure_kind": "error", "reason": "no"}' >&3)");
  auto c = case_;
  c.device = "cuda";
  c.memory_limit_bytes = 0;
  Record planned(c);
  EXPECT_FALSE(planned.has("memory_limit_bytes"));
  planned.set("memory_limit_bytes", 12345);
  EXPECT_EQ(run_case(worker_, {{c, planned}}, environment_, std::nullopt).get("memory_limit_bytes"), 12345);
  EXPECT_CONTAINS(folder_.read("request"), "\"memory_limit_bytes\":12345");
}

// The test forks, because a signal that was caught once stays recorded in the process.
TEST_F(CaseRunner, AnInterruptEndsTheWorkerAndThrows) {
  for (const int sent : {SIGINT, SIGTERM}) {
    use_worker("trap '' INT TERM; sleep 300 & echo $! > " + path("grandchild") + "; sleep 300");
    const auto child = fork();
    if (child == 0) {
      catch_interrupts();
      try {
        run_case(worker_, {{case_, Record(case_)}}, environment_, std::nullopt);
      } catch (const Interrupted& interrupted) {
        _exit(interrupted.signal == sent ? 42 : 1);
      } catch (...) {
      }
      _exit(2);
    }
    const auto grandchild = pid_in("grandchild");
    kill(child, sent);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 42);
    EXPECT_TRUE(is_gone(grandchild));
    std::filesystem::remove(path("grandchild"));
  }
}

}  // namespace
}  // namespace attnbench
