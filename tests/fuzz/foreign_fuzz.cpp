// Fuzzes the reading of other programs' benchmark results. For any text, read_foreign_run() must give values that are numbers
// above 0 or faults, or throw a UsageError.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "harness/foreign/foreign_run.h"
#include "harness/text/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // A measure of its own for each length, so that each text is read once.
  static const char* const measures[] = {"", "cpu_time", "memory", "ops", "throughput", "bytes_per_second"};
  try {
    const auto run = attnbench::read_foreign_run(text, "fuzz", measures[size % std::size(measures)]);
    if (run.results.empty()) std::abort();
    for (const auto& result : run.results)
      if (result.name.empty() || (result.fault.empty() && !(std::isfinite(result.value) && result.value > 0))) std::abort();
  } catch (const attnbench::UsageError&) {
  }
  return 0;
}
