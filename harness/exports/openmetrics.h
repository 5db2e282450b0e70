// Cases as OpenMetrics text, which Prometheus and programs like it read.
#pragma once

#include <string>

#include "harness/exports/exported_cases.h"

namespace attnbench {

// A gauge for each measure of measures_of(), with its unit in its name: attnbench_time_seconds, attnbench_throughput_calls,
// attnbench_baseline_ratio, attnbench_memory_bytes, attnbench_error_ratio and attnbench_approximation_error_ratio. Those with an
// interval have it in two further gauges, such as attnbench_time_low_seconds and attnbench_time_high_seconds.
// attnbench_finished_timestamp_seconds is when a case was measured; samples have no timestamps, since the textfile collector and
// the Pushgateway refuse them. Labels are method, protocol, query_len, threads, and every other axis that does not have its
// default. attnbench_environment_info is 1 for each machine, build and revision, which are its labels.
//
// The text is also valid in Prometheus's older text format. Throws UsageError for a record whose finished_at is not a date.
std::string openmetrics(const std::vector<ExportedCase>& cases);

}  // namespace attnbench
