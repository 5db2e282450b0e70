// Cases as results of asv (airspeed velocity), whose pages, comparisons and regressions then show them.
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
// A benchmark is "METHOD.PROTOCOL.MEASURE", for each measure of measures_of() but throughput, because asv takes less as better.
// Its parameters are query_len, and the other axes that do not have their defaults as one text. Times are in seconds. Those of
// several processes have samples, which are the medians of the processes, their quartiles, and a 99 % interval of their median by
// order statistics. Fewer than eight processes have no such interval; it is then as wide as numbers are, so that asv calls no
// difference significant.
//
// Throws UsageError for a commit that is not 40 hexadecimal digits, and for a benchmarks.json that is none.
void write_asv_results(const std::vector<ExportedCase>& cases, const AsvCommit& commit, const std::filesystem::path& folder);

}  // namespace attnbench
