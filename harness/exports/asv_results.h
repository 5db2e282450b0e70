// Writes cases as results of asv (airspeed velocity), so that its pages, comparisons and regressions show them.
#pragma once

#include <filesystem>
#include <string>

#include "harness/exports/exported_cases.h"

namespace attnbench {

struct AsvCommit {
  std::string hash;     // in full: asv looks it up in the repository
  int64_t time_s = -1;  // when it was committed, in seconds since 1970; -1 for the time of the last record
};

// Writes or replaces the files of one commit in a folder of results, which asv.conf.json names as results_dir:
//   benchmarks.json               all benchmarks; those that it has already stay, and so do their parameters
//   MACHINE/machine.json          a folder for each machine, with the name that the folders of results have
//   MACHINE/COMMIT-attnbench-torch-VERSION.json, of the first eight digits of the commit
//
// A benchmark is "METHOD.PROTOCOL.MEASURE", for each measure of measures_of() except throughput, because asv assumes that less is
// better. Its parameters are query_len and, as one text, the other axes that do not have their defaults. Times are in seconds.
// Times of several processes have samples, which are the medians of the processes, their quartiles, and a 99 % interval of their
// median by order statistics. Fewer than eight processes have no such interval; it is then 0 to the largest number, so that asv
// calls no difference significant.
//
// Throws UsageError for a commit that is not 40 hexadecimal digits in lower case, and for a benchmarks.json that is not one of
// asv's version 2.
void write_asv_results(const std::vector<ExportedCase>& cases, const AsvCommit& commit, const std::filesystem::path& folder);

}  // namespace attnbench
