// The measured cases of folders of records, and their measures, for files that other programs read.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/schema/record.h"
#include "harness/statistics/statistics.h"

namespace attnbench {

// The records of one folder, and those of single processes.
struct RecordsOfFolder {
  std::string folder;  // named in messages
  std::vector<Record> records, processes;
};

struct ExportedCase {
  const Record* record = nullptr;        // points into the folders
  std::vector<const Record*> processes;  // the measured processes of the case; folders of older versions have none
  std::string name;                      // "METHOD/PROTOCOL/query_len:N", the words of rest, and "threads:N", separated by "/"
  // The axes that are neither in the beginning nor at the end of the name and do not have their defaults, and their values.
  std::vector<std::pair<std::string, std::string>> rest;
};

struct ExportedCases {
  std::vector<ExportedCase> cases;
  size_t left_out = 0;  // number of records that were not measured, or were measured elsewhere
};

// Throws UsageError if two folders have a record of the same case, since one name would then stand for two measurements. The
// result points into `folders`.
ExportedCases exported_cases(const std::vector<RecordsOfFolder>& folders);

// One number that a record says about its case.
struct Measure {
  std::string name;     // one of the names below
  double value = 0;     // in the unit below
  Interval interval{};  // 95 %; NaN where the record has none
  bool has_interval() const;
};

// What is measured, with the same meaning in every format:
//   time            median time of a call in seconds, with its interval
//   throughput      calls per second: the inverse of the time, with the inverse interval. The only one of which more is better
//   baseline-ratio  time divided by the time of the baseline that was measured in turns, with its interval
//   memory          bytes above the inputs at the peak of a call
//   error           largest relative error against the float64 reference of the method, as it is compared with the tolerance
//   approximation-error  median relative error of a row against exact attention
// Those that the record lacks are missing.
std::vector<Measure> measures_of(const Record& record);

}  // namespace attnbench
