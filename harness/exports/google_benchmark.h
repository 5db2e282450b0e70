// Records in the JSON that Google Benchmark writes, which dashboards and its tools/compare.py read.
#pragma once

#include <string>
#include <vector>

#include "harness/exports/exported_cases.h"

namespace attnbench {

struct GoogleBenchmarkOptions {
  bool aggregates_only = false;  // whether to leave out the rows of single processes if a case has several
};

// Returns {"context": …, "benchmarks": […]}. Each case becomes a benchmark whose repetitions are its processes. Its name is
// "METHOD/PROTOCOL/query_len:N", then "axis:value" for every other axis that does not have its default, and at the end
// "threads:N".
//
// A process is a row of the run type "iteration": real_time is the median time of a call in milliseconds, and iterations is the
// number of timed calls. cpu_time is the processor time of all threads, real_time · processor_share · threads; it equals
// real_time if the share was not measured, as on a GPU. A case with several processes also has rows of the run type "aggregate",
// for mean, median, standard deviation (n − 1) and coefficient of variation. They are computed from the processes that count in
// the record, from which disturbed ones may be missing, so that the median is the record's time_median_ms.
Json google_benchmark_export(const std::vector<ExportedCase>& cases, const GoogleBenchmarkOptions& options = {});

}  // namespace attnbench
