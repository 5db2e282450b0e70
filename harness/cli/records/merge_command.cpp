// `attnbench merge`: joins folders of one sweep after it has checked that their records belong together.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/rendering/case_names.h"
#include "harness/cli/shared_options.h"
#include "harness/cli/terminal.h"
#include "harness/records/environment_file.h"
#include "harness/records/provenance.h"
#include "harness/records/record_folders.h"
#include "harness/records/result_folder.h"
#include "harness/sweep/catalogue.h"
#include "harness/sweep/shard.h"
#include "harness/text/errors.h"
#include "harness/text/notice.h"
#include "harness/text/shell_words.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

struct Part {
  std::string folder;
  std::vector<Record> records;
  Json environment;  // null for a folder of external records alone, which no sweep has measured
};

struct MergeOptions {
  std::vector<std::string> folders;
  std::string out;
  bool keep_latest = false, quiet = false;
};

// The first part that a sweep has measured; null if there is none.
const Part* first_measured(const std::vector<Part>& parts) {
  const auto found = std::find_if(parts.begin(), parts.end(), [](const Part& part) { return !part.environment.is_null(); });
  return found == parts.end() ? nullptr : &*found;
}

std::vector<Part> parts_of(const MergeOptions& options) {
  std::vector<Part> parts;
  FileDigests digests;  // of all parts so far
  for (const auto& folder : options.folders) {
    parts.push_back({folder, read_records(folder), read_environment(folder)});
    const auto& part = parts.back();
    if (part.environment.is_null()) {
      const bool is_external =
          !part.records.empty() && std::all_of(part.records.begin(), part.records.end(),
                                               [](const Record& record) { return record.has("external_source"); });
      if (is_external) continue;
      throw UsageError(fmt::format("{} has no environment.json, which says how its records were measured", folder));
    }
    const auto& first = *first_measured(parts);
    const auto sweep_of = [](const Part& p) { return p.environment.value("sweep", Json()).dump(); };
    auto different = provenance_differences(first.environment, part.environment, ComparedNames::both);
    if (sweep_of(first) != sweep_of(part))
      different += fmt::format("\n  sweep: {} there, {} here", sweep_of(first), sweep_of(part));
    const auto of_part = file_digests(part.records);
    different += digest_differences(digests, of_part);
    digests.insert(of_part.begin(), of_part.end());
    if (!different.empty()) throw UsageError(fmt::format("{} was not measured like {}:{}", folder, first.folder, different));
    if (const auto in_records = record_differences(part.environment, part.records); !in_records.empty())
      throw UsageError(fmt::format("{} has records that were not measured as its environment.json says:{}", folder, in_records));
  }
  return parts;
}

// The shards that are missing among the parts, such as "2/4".
std::vector<std::string> missing_shards(const std::vector<Part>& parts) {
  std::vector<Shard> seen;
  size_t count = 0;
  for (const auto& part : parts) {
    if (part.environment.is_null()) continue;
    const auto text = part.environment.value("shard", Json());
    if (text.is_null()) continue;
    if (!text.is_string())
      throw UsageError(fmt::format("{}/environment.json: shard = {}, expected text such as \"1/3\"", part.folder, text.dump()));
    seen.push_back(Shard::parse(text.get<std::string>()));
    count = std::max(count, seen.back().count);
  }
  std::vector<std::string> missing;
  for (size_t i = 1; i <= count; ++i)
    if (std::none_of(seen.begin(), seen.end(), [&](const Shard& s) { return s.number == i && s.count == count; }))
      missing.push_back(fmt::format("{}/{}", i, count));
  return missing;
}

// The cases with two records, by the two folders that these are in.
using RepeatedCases = std::map<std::pair<std::string, std::string>, std::vector<Record>>;

// A paragraph for each pair of folders with the number of such cases and the names of the first; empty if there are none. `what`
// says what they have.
std::string repeated_in_words(const RepeatedCases& cases, const std::string& what, const CaseNames& names) {
  constexpr size_t kNamed = 5;
  const auto width = table_width(stderr);
  std::string text;
  for (const auto& [folders, records] : cases) {
    std::vector<std::string> shown;
    for (size_t i = 0; i < std::min(records.size(), kNamed); ++i) shown.push_back(names.of(records[i]));
    const auto& [one, other] = folders;
    const auto more = records.size() - shown.size();
    const auto line = fmt::format(
        "{} {} {}, in {} and in {}: {}{}", count_of(records.size(), "case"), has_or_have(records.size()), what, one, other,
        fmt::join(shown, ", "),
        more > 0 ? fmt::format(" and {} more; `attnbench compare {}` shows all", more, shell_text({one, other})) : "");
    text += (width > 0 ? wrapped(line, width) : line) + "\n";
  }
  return text;
}

int run_merge(const MergeOptions& options, const WorkerProgram& worker) {
  const auto parts = parts_of(options);
  std::vector<Record> merged;
  RepeatedCases duplicates, conflicts;
  std::map<std::string, std::pair<size_t, const Part*>> index;
  for (const auto& part : parts)
    for (const auto& record : part.records) {
      const auto [place, is_new] = index.try_emplace(record.key(), merged.size(), &part);
      if (is_new) {
        merged.push_back(record);
        continue;
      }
      auto& [at, from] = place->second;
      const bool same = merged[at].to_json() == record.to_json();
      (same ? duplicates : conflicts)[{from->folder, part.folder}].push_back(record);
      if (same || record.text("finished_at") <= merged[at].text("finished_at")) continue;
      merged[at] = record;
      from = &part;
    }
  const CaseNames names(merged);
  print_notice(repeated_in_words(duplicates, "two equal records", names));
  print_notice(repeated_in_words(
      conflicts, options.keep_latest ? "two different records, of which the later is kept" : "two different records", names));
  if (!conflicts.empty() && !options.keep_latest)
    throw UsageError("nothing was written; --keep-latest takes the later record of each case");
  const auto missing = missing_shards(parts);
  if (!missing.empty()) print_notice(fmt::format("missing: shard {}\n", fmt::join(missing, ", ")));

  const auto diagnostics = Catalogue::load(worker).diagnostics();
  ResultFolder folder(options.out);
  if (!folder.records().empty()) throw UsageError(fmt::format("{} already holds records; merge into a new folder", options.out));
  if (const auto* const measured = first_measured(parts)) {
    auto environment = measured->environment;
    environment.erase("shard");
    environment["merged_from"] = options.folders;
    folder.write_environment(environment);
  }
  folder.write_schema(diagnostics);
  for (const auto& part : parts)
    for (const auto& process : read_processes(part.folder))
      if (const auto found = index.find(process.key()); found != index.end() && found->second.second == &part)
        folder.append_process(process);
  for (const auto& record : merged) folder.append(record);
  folder.write_csv();
  if (!options.quiet)
    print_text(fmt::format("{}: {} from {}\n", options.out, count_of(merged.size(), "case"), count_of(parts.size(), "folder")));
  return missing.empty() ? exit_code::success : exit_code::failure;
}

}  // namespace

Run add_merge_command(Command& command) {
  const auto options = std::make_shared<MergeOptions>();
  command.add("folders", &options->folders, "folders of records, such as the shards of one sweep",
              {.required = true, .completion = Completion::files});
  command.add("--out", &options->out, "folder to write all records to",
              {.placeholder = "FOLDER", .required = true, .completion = Completion::files});
  command.add("--keep-latest", &options->keep_latest,
              "take the later of two different records of one case, instead of writing nothing");
  add_quiet_option(command, options->quiet, "print no summary");
  command.add_example("merge results/figure1/*/shard-* --out all", "joins the shards of a sweep");
  return [options](const WorkerProgram& worker) { return run_merge(*options, worker); };
}

}  // namespace attnbench
