// Cases in Bencher Metric Format, which `bencher run --adapter json` and programs like it read.
#pragma once

#include "harness/exports/exported_cases.h"

namespace attnbench {

// {"NAME": {"MEASURE": {"value": …, "lower_value": …, "upper_value": …}}}, as bencher.dev/docs/reference/bencher-metric-format
// describes it. The measures are those of measures_of(). Where Bencher has a name and a unit for a measure, they are used: the
// time is `latency`, in nanoseconds, and throughput is in calls per second. The bounds are the ends of the interval. Throws
// UsageError for a name with more than 1024 characters, which Bencher does not take.
Json bencher_metrics(const std::vector<ExportedCase>& cases);

}  // namespace attnbench
