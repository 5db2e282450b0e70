// The benchmarks of a user's command as the cases of a gate.
//
// One run of the command is one process in the sense of gate.h: it gives one value for each benchmark, however many repetitions
// it makes. A pair is a run on each side, one right after the other, in random order. So a disturbance of the machine that lasts
// longer than a pair slows both of its runs down.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "harness/gate/commands/benchmark_command.h"
#include "harness/gate/gate_suite.h"

namespace attnbench {

class CommandSuite : public GateSuite {
 public:
  // Each side's worker has the launcher that starts the command in the side's copy of a repository. `scratch` is a folder for
  // files of one run.
  CommandSuite(BenchmarkCommand command, SuiteOptions options, std::vector<Side> sides, std::filesystem::path scratch);

  // Runs the command once on each side to find out what benchmarks there are; the values of these runs are not used. A benchmark
  // that the base lacks is new; one that the candidate lacks, or that fails, is unusable. Throws WorkerError as
  // run_benchmark_command() does, and if the sides write different formats.
  void check() override;
  // Runs a pair. Throws WorkerError as run_benchmark_command() does.
  void measure(std::vector<size_t> cases) override;
  // Each pair measures every benchmark. The values of the other benchmarks are kept until these are asked for.
  void measure_one(size_t index) override;
  // Throws UsageError.
  void count_instructions() override;
  bool measures_all_at_once() const override { return true; }
  std::string what_is_measured() const override { return measure_.name; }
  std::string source_name() const override { return "command"; }

 private:
  ForeignRun run(size_t side);
  void add_pair();
  void take(size_t index);

  BenchmarkCommand command_;
  std::filesystem::path scratch_;
  ForeignMeasure measure_;
  // For each case, the pairs that were not asked for yet; a pair has one value for each side.
  std::vector<std::deque<std::vector<double>>> waiting_;
};

}  // namespace attnbench
