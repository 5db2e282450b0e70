// Reads Bencher Metric Format: an object for each benchmark, with an object for each measure.
#include <fmt/format.h>

#include "harness/foreign/format_readers.h"

namespace attnbench {

void read_bencher_metrics(const Json& file, ForeignCollector& collector) {
  for (const auto& [name, measures] : file.items()) {
    const auto of = "the benchmark " + quoted_name(name);
    const auto found = collector.checked_object(measures, of).find(collector.measure().name);
    if (found == measures.end()) {
      collector.leave_out(name);
      continue;
    }
    const auto value = collector.checked_object(*found, collector.measure().name + " of " + of).find("value");
    if (value == found->end()) collector.fail(fmt::format("{} of {} has no value", collector.measure().name, of));
    collector.add(name, *value);
  }
}

}  // namespace attnbench
