// Cases in the format customSmallerIsBetter of github-action-benchmark.
#pragma once

#include "harness/exports/exported_cases.h"

namespace attnbench {

// [{"name": …, "unit": …, "value": …, "range": …, "extra": …}], one entry for each measure of each case except throughput, of
// which more is better. A name is that of the case and that of the measure, separated by a space. Times are in milliseconds.
// `range` is the 95 % interval as text, and is missing where the record has none; `extra` has a line each for the machine, torch
// and the revision.
Json custom_benchmarks(const std::vector<ExportedCase>& cases);

}  // namespace attnbench
