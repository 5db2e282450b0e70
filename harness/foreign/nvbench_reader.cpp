// Reads nvbench's JSON as nvbench/json_printer.cu of version 1.0.0 of the format writes it: each benchmark has states, one for
// each combination of axes and device, and each state has summaries, whose numbers are texts. No file of a real run was ever
// seen.
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <set>

#include "harness/foreign/format_readers.h"

namespace attnbench {
namespace {

const char* tag_of(const std::string& measure) {
  static const std::map<std::string, const char*> tags = {{"gpu_time", "nv/cold/time/gpu/mean"},
                                                          {"cpu_time", "nv/cold/time/cpu/mean"},
                                                          {"batch_time", "nv/batch/time/gpu/mean"},
                                                          {"items_per_second", "nv/cold/bw/item_rate"},
                                                          {"bytes_per_second", "nv/cold/bw/global/bytes_per_second"}};
  return tags.at(measure);
}

// The number of a summary, which null stands for if the text is none.
Json number_of(const Json& summary, const std::string& of, const ForeignCollector& collector) {
  for (const auto& item : collector.list_in(summary, "data", of)) {
    if (text_or(item, "name") != "value") continue;
    const auto text = collector.text_in(item, "value", of);
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() ? Json(number) : Json();
  }
  return {};
}

void read_state(const Json& state, const std::string& name, ForeignCollector& collector) {
  const auto of = "the state " + quoted_name(name);
  const auto skipped = state.find("is_skipped");
  if (skipped != state.end() && *skipped == Json(true)) {
    collector.add_fault(name, text_or(state, "skip_reason", "it was skipped"));
    return;
  }
  const auto summaries = state.find("summaries");
  if (summaries != state.end() && !summaries->is_null())
    for (const auto& summary : collector.list_in(state, "summaries", of))
      if (text_or(collector.checked_object(summary, "a summary of " + of), "tag") == tag_of(collector.measure().name)) {
        collector.add(name, number_of(summary, of, collector));
        return;
      }
  collector.leave_out(name);
}

}  // namespace

void read_nvbench(const Json& file, ForeignCollector& collector) {
  if (const auto devices = file.find("devices"); devices != file.end() && devices->is_array()) {
    std::string machine;
    for (const auto& device : *devices) machine += (machine.empty() ? "" : ", ") + text_or(device, "name");
    collector.set_machine(machine);
  }
  std::set<std::string> seen;
  for (const auto& benchmark : collector.list_in(file, "benchmarks", "the file")) {
    const auto name =
        collector.text_in(collector.checked_object(benchmark, "an entry of benchmarks"), "name", "an entry of benchmarks");
    const auto states = benchmark.find("states");
    if (states != benchmark.end() && states->is_null()) continue;
    for (const auto& state : collector.list_in(benchmark, "states", "the benchmark " + quoted_name(name))) {
      const auto values = text_or(collector.checked_object(state, "a state of " + quoted_name(name)), "name");
      const auto full_name = name + (values.empty() ? "" : " " + values);
      if (!seen.insert(full_name).second) collector.fail(fmt::format("two states have the name {}", quoted_name(full_name)));
      read_state(state, full_name, collector);
    }
  }
}

}  // namespace attnbench
