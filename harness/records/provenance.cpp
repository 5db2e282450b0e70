// Compares environments, settings and digests of files, and says as text what differs.
#include "harness/records/provenance.h"

#include <fmt/format.h>

#include <set>

namespace attnbench {

std::string provenance_differences(const Json& there, const Json& here, ComparedNames compared) {
  const auto value_of = [](const Json& provenance, const char* part, const std::string& name) {
    return provenance.contains(part) && provenance[part].contains(name) ? provenance[part][name] : Json();
  };
  std::string text;
  for (const auto* part : {"environment", "settings"}) {
    std::set<std::string> names;
    for (const auto* side : {&here, &there})
      if (side->contains(part) && (side == &here || compared == ComparedNames::both))
        for (const auto& [name, value] : (*side)[part].items()) names.insert(name);
    for (const auto& name : names) {
      const auto value_there = value_of(there, part, name), value_here = value_of(here, part, name);
      if (value_there != value_here)
        text += fmt::format("\n  {}: {} there, {} here", name, value_there.dump(), value_here.dump());
    }
  }
  const auto baselines_there = there.value("baselines", Json()), baselines_here = here.value("baselines", Json());
  if (baselines_there != baselines_here)
    text += fmt::format("\n  baselines: {} there, {} here", baselines_there.dump(), baselines_here.dump());
  return text;
}

std::string record_differences(const Json& provenance, const std::vector<Record>& records) {
  for (const auto& record : records) {
    if (record.has("external_source")) continue;
    std::string text;
    for (const auto* part : {"environment", "settings"}) {
      if (!provenance.contains(part)) continue;
      for (const auto& [name, value] : provenance[part].items()) {
        // A setting of 0 stands for a default that the record may have replaced by its value, such as the available memory.
        const bool is_default = value.is_number() && value.get<double>() == 0;
        if (is_default || value.is_null() || !find_column(name) || !record.has(name)) continue;
        if (record.get(name) != value)
          text += fmt::format("\n  {}: {} expected, {} in a record", name, value.dump(), record.get(name).dump());
      }
    }
    if (!text.empty()) return text;
  }
  return "";
}

FileDigests file_digests(const std::vector<Record>& records) {
  FileDigests digests;
  for (const auto& record : records) {
    if (record.has("external_source")) continue;
    digests["method_digest of " + record.text("method")] = record.text("method_digest");
    if (record.has("inputs_digest")) digests["inputs_digest of " + record.text("inputs")] = record.text("inputs_digest");
  }
  return digests;
}

std::string digest_differences(const FileDigests& there, const FileDigests& here) {
  std::string text;
  for (const auto& [file, digest] : here) {
    const auto found = there.find(file);
    if (found == there.end() || found->second == digest) continue;
    const auto digest_text = [](const std::string& of_file) { return of_file.empty() ? "none" : of_file; };
    text += fmt::format("\n  {}: {} there, {} here", file, digest_text(found->second), digest_text(digest));
  }
  return text;
}

}  // namespace attnbench
