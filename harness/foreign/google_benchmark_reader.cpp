// Reads Google Benchmark's JSON: an entry for each repetition of each benchmark, and entries of aggregates.
#include <fmt/format.h>

#include <set>
#include <utility>

#include "harness/foreign/format_readers.h"

namespace attnbench {
namespace {

// Seconds in the unit of an entry; 0 for an unknown one.
double seconds_in(const std::string& unit) {
  if (unit == "ns") return 1e-9;
  if (unit == "us") return 1e-6;
  if (unit == "ms") return 1e-3;
  return unit == "s" ? 1 : 0;
}

bool is_true(const Json& entry, const char* name) {
  const auto found = entry.find(name);
  return found != entry.end() && found->is_boolean() && found->get<bool>();
}

void add_entry(const Json& entry, const std::string& name, ForeignCollector& collector) {
  const auto& measure = collector.measure();
  const auto found = entry.find(measure.name);
  if (found == entry.end()) {
    collector.leave_out(name);
    return;
  }
  double factor = 1;
  if (measure.unit == "s") {
    const auto unit = collector.text_in(entry, "time_unit", "the benchmark " + quoted_name(name));
    factor = seconds_in(unit);
    if (factor == 0)
      collector.fail(fmt::format("time_unit of the benchmark {} is '{}', expected ns, us, ms or s", quoted_name(name), unit));
  }
  collector.add(name, *found, factor);
}

}  // namespace

// The repetitions of a benchmark have its run_name. Of the aggregates, the median counts, and only if there are no repetitions.
void read_google_benchmark(const Json& file, ForeignCollector& collector) {
  const auto& context = file["context"];
  const auto processors = context.find("num_cpus");
  collector.set_machine(text_or(context, "host_name") + (processors != context.end() && processors->is_number_integer()
                                                             ? fmt::format(", {} processors", processors->dump())
                                                             : ""));
  std::set<std::string> repeated;
  std::set<std::pair<std::string, std::string>> seen;
  const auto& entries = collector.list_in(file, "benchmarks", "the file");
  const auto name_of = [&](const Json& entry) {
    const auto name =
        collector.text_in(collector.checked_object(entry, "an entry of benchmarks"), "name", "an entry of benchmarks");
    return text_or(entry, "run_name", name);
  };
  for (const auto& entry : entries) {
    const auto name = name_of(entry);
    if (text_or(entry, "run_type", "iteration") != "iteration") continue;
    repeated.insert(name);
    // Two benchmarks of one name would be taken for repetitions of one.
    const auto index = entry.find("repetition_index");
    if (!seen.emplace(name, index == entry.end() ? "" : index->dump()).second)
      collector.fail(fmt::format("two benchmarks have the name {}, expected a name for each", quoted_name(name)));
    if (is_true(entry, "error_occurred") || is_true(entry, "skipped"))
      collector.add_fault(name, text_or(entry, "error_message", text_or(entry, "skip_message", "the benchmark failed")));
    else add_entry(entry, name, collector);
  }
  for (const auto& entry : entries) {
    const auto name = name_of(entry);
    if (text_or(entry, "run_type") != "aggregate" || repeated.contains(name)) continue;
    if (text_or(entry, "aggregate_name") != "median") continue;
    if (!seen.emplace(name, "median").second)
      collector.fail(fmt::format("two benchmarks have the name {}, expected a name for each", quoted_name(name)));
    add_entry(entry, name, collector);
  }
}

}  // namespace attnbench
