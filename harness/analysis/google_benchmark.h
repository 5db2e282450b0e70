// Records in the JSON that Google Benchmark writes, which dashboards and its tools/compare.py read.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

// The records of one folder, and those of single processes.
struct RecordsOfFolder {
  std::string folder;  // named in messages
  std::vector<Record> records, processes;
};

struct GoogleBenchmarkOptions {
  bool aggregates_only = false;  // no rows of single processes where a case has several
};

struct GoogleBenchmarkExport {
  Json json;            // {"context": …, "benchmarks": […]}
  size_t left_out = 0;  // number of records that were not measured, or were measured elsewhere
};

// Each measured case becomes a benchmark whose repetitions are its processes. Its name is "METHOD/PROTOCOL/query_len:N", then
// "axis:value" for every other axis that does not have its default, and at the end "threads:N".
//
// A process is a row of the run type "iteration": real_time is the median time of a call in milliseconds, and iterations is the
// number of timed calls. cpu_time is real_time times the share of it that the threads spent on processors, added up over the
// threads; it equals real_time where that share was not measured, as on a GPU. A case with several processes also has rows of the
// run type "aggregate", for mean, median, standard deviation (n − 1) and coefficient of variation. They are over the processes
// that count in the record, from which disturbed ones may be missing, so that the median is the record's time_median_ms.
//
// Throws UsageError if two folders have a record of the same case, since rows of one name would then mix two measurements.
GoogleBenchmarkExport google_benchmark_export(const std::vector<RecordsOfFolder>& folders,
                                              const GoogleBenchmarkOptions& options = {});

}  // namespace attnbench
