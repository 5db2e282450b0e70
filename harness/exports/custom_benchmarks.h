// Cases in the format customSmallerIsBetter of github-action-benchmark.
#pragma once

#include "harness/exports/exported_cases.h"

namespace attnbench {

// [{"name": …, "unit": …, "value": …, "range": …, "extra": …}], one entry for each measure of each case except throughput,
// because more of it is better. `name` is the name of the case and that of the measure, separated by a space. Times are in
// milliseconds. `range` is the 95 % interval as text, and is missing if the record has none; `extra` has a line each for the
// machine, torch, the revision and the date.
Json custom_benchmarks(const std::vector<ExportedCase>& cases);

}  // namespace attnbench
