// The formats of other programs' benchmark results, and the measures in them of which it is known whether more is better.
#pragma once

#include <string>
#include <vector>

namespace attnbench {

enum class ForeignFormat {
  google_benchmark,  // Google Benchmark, --benchmark_format=json
  pytest_benchmark,  // pytest-benchmark, --benchmark-json
  hyperfine,         // hyperfine, --export-json
  asv,               // asv (airspeed velocity), a file of one commit in its folder of results, version 2
  bencher,           // Bencher Metric Format
  nvbench,           // nvbench, --json. Read as its source writes it; no file of a real run was ever seen
};
// Such as "Google Benchmark JSON".
const char* format_name(ForeignFormat format);
// All of them, for messages.
std::string format_names();

// What one number of a benchmark says. Nothing is compared by a measure that is none of these, because it is not known whether
// more of it is better.
struct ForeignMeasure {
  std::string name;  // as the file has it or, of asv and nvbench, as a user names it here
  std::string unit;  // of the values that are read: "s", "bytes", or a rate such as "items/s"
  bool more_is_better = false;
  double factor = 1;  // from the unit in the file to `unit`; Google Benchmark's times have their unit beside them
};

// The measures of a format; the first one is compared unless the user names another.
const std::vector<ForeignMeasure>& measures_of(ForeignFormat format);
// The measure of this name, or the first one if the name is empty. Throws UsageError, which begins with `where`, for a name that
// is none of the format's measures.
const ForeignMeasure& find_measure(ForeignFormat format, const std::string& name, const std::string& where);

// A number whose ratio of two sides is above 1 if the second one is worse: the value itself or, if more is better, its inverse.
double cost_of(const ForeignMeasure& measure, double value);

// The value with its unit, such as "1.23 ms", "4.5 MiB" or "6.78e+06 items/s"; "–" for NaN.
std::string value_text(const ForeignMeasure& measure, double value);

}  // namespace attnbench
