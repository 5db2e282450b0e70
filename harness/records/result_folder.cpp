#include "harness/records/result_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "harness/records/replace_file.h"
#include "harness/schema/schema.h"
#include "harness/text/csv.h"
#include "harness/text/errors.h"
#include "harness/text/text_file.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxEnvironmentBytes = size_t{16} << 20;
constexpr size_t kMaxSchemaBytes = size_t{16} << 20;

bool is_list(const Column& column) { return column.type == ColumnType::numbers; }

// Writes numbers as JSON does, and text as csv_text() does.
std::string csv_cell(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? csv_text(value.get<std::string>()) : value.dump();
}

std::string joined(const std::string& folder, const char* name) { return (fs::path(folder) / name).string(); }

}  // namespace

std::vector<Record> read_records(const std::string& folder_or_file) {
  const auto path = fs::is_directory(folder_or_file) ? joined(folder_or_file, kRecordsFile) : folder_or_file;
  if (!fs::exists(path)) throw UsageError(fmt::format("{}: no such file, expected records of a sweep", path));
  return RecordsByCase(read_log(path)).take_records();
}

std::vector<std::string> record_folders(const std::string& path) {
  if (!fs::is_directory(path) || fs::exists(joined(path, kRecordsFile))) return {path};
  std::vector<std::string> found;
  std::error_code error;
  for (fs::recursive_directory_iterator each(path, error), end; !error && each != end; each.increment(error))
    if (each->path().filename() == kRecordsFile) found.push_back(each->path().parent_path().string());
  if (error) throw UsageError(fmt::format("{}: cannot read the folder: {}", path, error.message()));
  if (found.empty())
    throw UsageError(fmt::format("{}: no such file, and no folder below {} holds one; expected records of a sweep",
                                 joined(path, kRecordsFile), path));
  std::sort(found.begin(), found.end());
  return found;
}

std::string record_folder(const std::string& path) {
  const auto found = record_folders(path);
  if (found.size() > 1)
    throw UsageError(fmt::format("{} holds several folders of records: {}; expected one of them", path, fmt::join(found, ", ")));
  return found.front();
}

std::vector<Record> read_processes(const std::string& folder) {
  const auto path = joined(folder, kProcessesFile);
  return fs::exists(path) ? read_log(path) : std::vector<Record>{};
}

RecordsByCase::RecordsByCase(std::vector<Record> lines) {
  records_.reserve(lines.size());
  for (auto& line : lines) put(std::move(line));
}

void RecordsByCase::put(Record record) {
  const auto [at, fresh] = index_.emplace(record.key(), records_.size());
  if (fresh) records_.push_back(std::move(record));
  else records_[at->second] = std::move(record);
}

std::vector<Record> RecordsByCase::take_records() {
  index_.clear();
  return std::exchange(records_, {});
}

const Record* RecordsByCase::find(const std::string& key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &records_[found->second];
}

Json environment_columns(const Record& environment) {
  Json json;
  for (const auto& column : columns())
    if (column.group == "environment") json[column.name] = environment.get(column.name);
  return json;
}

std::string folder_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c))) name += char(std::tolower(static_cast<unsigned char>(c)));
    else if (!name.empty() && name.back() != '-') name += '-';
  }
  return name;
}

std::string machine_slug(const Record& environment) {
  return folder_name(environment.text("cpu_model") + " " + environment.get("processors").dump() + " threads");
}

std::string default_folder(const std::string& what, const std::string& name, const Record& environment) {
  if (name.empty() || name == "." || name == "..")
    throw UsageError(
        fmt::format("the {}'s name '{}' cannot be the name of a folder in results/; name one with --out", what, name));
  return (fs::path("results") / name / machine_slug(environment)).string();
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw UsageError(fmt::format("{}: cannot make the folder: {}", path, error.message()));
}

FolderLock::FolderLock(const std::string& folder) {
  make_folder(folder);
  const auto path = joined(folder, ".lock");
  file_.open(path, O_RDWR | O_CREAT);
  if (flock(file_, LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 32> holder{};
    const auto count = read(file_, holder.data(), holder.size() - 1);
    throw UsageError(fmt::format("{}: in use by process {}", folder, count > 0 ? holder.data() : "unknown"));
  }
  if (ftruncate(file_, 0) != 0) fail_on(path, "write");
  write_all(file_, std::to_string(getpid()), path);
}

ResultFolder::ResultFolder(std::string path)
    : path_(std::move(path)),
      lock_(path_),
      record_log_(path_, kRecordsFile),
      process_log_(path_, kProcessesFile),
      records_(record_log_.lines()) {}

void ResultFolder::append(const Record& record) {
  record_log_.append(record);
  records_.put(record);
}

void ResultFolder::arrange(const std::vector<std::string>& keys) {
  std::vector<Record> arranged;
  std::set<std::string> listed(keys.begin(), keys.end());
  for (const auto& key : keys)
    if (const auto* record = find(key)) arranged.push_back(*record);
  for (const auto& record : records())
    if (!listed.contains(record.key())) arranged.push_back(record);
  record_log_.rewrite(arranged);
  records_ = RecordsByCase(arranged);
}

void ResultFolder::drop_processes(const std::set<std::string>& keys) {
  auto kept = processes();
  if (std::erase_if(kept, [&](const Record& line) { return keys.contains(line.key()); }) > 0)
    process_log_.rewrite(std::move(kept));
}

void ResultFolder::set_aside() {
  record_log_.set_aside("records.previous.jsonl");
  process_log_.set_aside("processes.previous.jsonl");
  records_ = {};
}

Json ResultFolder::environment() const { return read_environment(path_); }

Json read_environment(const std::string& folder) {
  const auto path = joined(folder, "environment.json");
  if (!fs::exists(path)) return nullptr;
  return parse_environment(path, read_text_file(path, kMaxEnvironmentBytes));
}

Json parse_environment(const std::string& path, std::string_view text) {
  const auto refuse = [&](const std::string& what) {
    return UsageError(fmt::format("{}: {}; remove the file, since every record also says how it was measured", path, what));
  };
  Json json;
  try {
    json = parse_json(text);
  } catch (const JsonError& error) {
    throw refuse(
        fmt::format("not JSON: {}{}", error.what(), error.position > 0 ? fmt::format(" (byte {})", error.position) : ""));
  }
  if (!json.is_object()) throw refuse("not a JSON object");
  for (const auto* part : {"environment", "settings"})
    if (json.contains(part) && !json[part].is_object()) throw refuse(fmt::format("{} is not a JSON object", part));
  return json;
}

void ResultFolder::write_environment(const Json& environment) {
  replace_file(path_, "environment.json", environment.dump(2) + "\n");
}

void ResultFolder::write_schema(const Json& diagnostics) const {
  const auto text = schema_json(diagnostics).dump(2) + "\n";
  const auto path = joined(path_, kSchemaFile);
  if (!fs::exists(path) || read_text_file(path, kMaxSchemaBytes) != text) replace_file(path_, kSchemaFile, text);
}

void ResultFolder::write_csv() const {
  record_log_.check_in_place();
  replace_file(path_, "records.csv", records_csv(records()));
}

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

std::vector<std::string> left_out_of_csv(const std::vector<Record>& records) {
  std::vector<const Record*> all;
  for (const auto& record : records) all.push_back(&record);
  std::vector<std::string> names;
  for (const auto& column : table_columns(all))
    if (is_list(column) && std::any_of(all.begin(), all.end(), [&](const Record* r) { return r->has(column.name); }))
      names.push_back(column.name);
  return names;
}

std::string records_csv(const std::vector<Record>& records) {
  std::vector<const Record*> all;
  for (const auto& record : records) all.push_back(&record);
  auto columns = table_columns(all);
  std::erase_if(columns, is_list);
  std::vector<std::string> cells;
  for (const auto& column : columns) cells.push_back(csv_text(column.name));
  auto csv = csv_row(cells);
  for (const auto* record : all) {
    cells.clear();
    for (const auto& column : columns) cells.push_back(csv_cell(record->get(column.name)));
    csv += csv_row(cells);
  }
  return csv;
}

}  // namespace attnbench
