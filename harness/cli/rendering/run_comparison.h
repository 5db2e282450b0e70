// Compares the runs of a benchmark program on two sides that were not measured in turns.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/shared_options.h"
#include "harness/foreign/run_sets.h"
#include "harness/statistics/equivalence.h"

namespace attnbench {

struct RunComparison {
  EquivalenceCriteria criteria;
  RunSet a, b;
  struct Benchmark {
    std::string name;
    TwoSides values;  // of the measure
    CaseComparison comparison;
  };
  std::vector<Benchmark> benchmarks;      // those that both sides have
  std::vector<std::string> not_compared;  // sentences about the others

  std::vector<Finding> findings() const;
};

// Tests each benchmark by the values of its runs (Mann–Whitney, adjusted by Holm's procedure, compare_sides()). Runs of two files
// lie apart in time, and often ran on two machines, so a difference may have other causes than the program; no level of false
// alarms is claimed. Throws UsageError if the sides have different formats or measures, no benchmark in common, or too few runs
// to find any benchmark different; then the message says how many are needed.
RunComparison compare_runs(RunSet a, RunSet b, const EquivalenceCriteria& criteria);

Json json_of(const RunComparison& comparison);
void print_report(const RunComparison& comparison, Format format);

}  // namespace attnbench
