// Fuzzes the reading of histories and the search for changes in them. For any text, read_history() must give lines that it reads
// again as they are, or throw a UsageError.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "harness/history/history_report.h"
#include "harness/text/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto lines = attnbench::read_history({reinterpret_cast<const char*>(data), size}, "fuzz");
    std::string text;
    for (const auto& line : lines) text += attnbench::text_of(line);
    const auto again = attnbench::read_history(text, "fuzz");
    if (again.size() != lines.size()) std::abort();
    size_t points = 0;
    for (const auto& series : attnbench::report_of(lines).series) points += series.points.size();
    if (points > lines.size() || (points == 0) != lines.empty()) std::abort();
  } catch (const attnbench::UsageError&) {
  }
  return 0;
}
