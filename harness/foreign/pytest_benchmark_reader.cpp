// Reads pytest-benchmark's JSON: an entry for each benchmark, with statistics of its rounds in seconds.
#include <fmt/format.h>

#include <set>

#include "harness/foreign/format_readers.h"

namespace attnbench {

void read_pytest_benchmark(const Json& file, ForeignCollector& collector) {
  const auto& machine = file["machine_info"];
  const auto cpu = machine.find("cpu");
  const auto model = cpu == machine.end() ? "" : text_or(*cpu, "brand_raw");
  const auto node = text_or(machine, "node");
  collector.set_machine(node + (node.empty() || model.empty() ? "" : ", ") + model);
  std::set<std::string> seen;
  for (const auto& entry : collector.list_in(file, "benchmarks", "the file")) {
    const auto name =
        collector.text_in(collector.checked_object(entry, "an entry of benchmarks"), "fullname", "an entry of benchmarks");
    if (!seen.insert(name).second)
      collector.fail(fmt::format("two benchmarks have the name {}, expected a name for each", quoted_name(name)));
    const auto& statistics = collector.object_in(entry, "stats", "the benchmark " + quoted_name(name));
    const auto found = statistics.find(collector.measure().name);
    if (found == statistics.end()) collector.leave_out(name);
    else collector.add(name, *found);
  }
}

}  // namespace attnbench
