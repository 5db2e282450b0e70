// Reads hyperfine's JSON: an entry for each command, with the statistics of its runs in seconds.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/foreign/format_readers.h"

namespace attnbench {

void read_hyperfine(const Json& file, ForeignCollector& collector) {
  std::set<std::string> seen;
  for (const auto& entry : collector.list_in(file, "results", "the file")) {
    const auto name = collector.text_in(collector.checked_object(entry, "an entry of results"), "command", "an entry of results");
    if (!seen.insert(name).second)
      collector.fail(fmt::format("two results are of the command {}, expected a command for each", quoted_name(name)));
    // With --ignore-failure, hyperfine also measures commands that fail.
    const auto codes = entry.find("exit_codes");
    if (codes != entry.end() && codes->is_array() &&
        std::any_of(codes->begin(), codes->end(), [](const Json& code) { return code != Json(0); })) {
      collector.add_fault(name, "the command did not always end with exit code 0");
      continue;
    }
    const auto found = entry.find(collector.measure().name);
    if (found == entry.end()) collector.leave_out(name);
    else collector.add(name, *found);
  }
}

}  // namespace attnbench
