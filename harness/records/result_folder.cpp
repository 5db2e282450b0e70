// Implements result folders: keeps their two logs, and writes the files beside these.
#include "harness/records/result_folder.h"

#include <filesystem>
#include <utility>

#include "harness/files/replace_file.h"
#include "harness/files/text_file.h"
#include "harness/records/environment_file.h"
#include "harness/records/record_folders.h"
#include "harness/records/records_csv.h"
#include "harness/schema/schema.h"

namespace attnbench {

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
  const std::filesystem::path folder(path_);
  if (std::filesystem::exists(folder / kEnvironmentFile))
    std::filesystem::rename(folder / kEnvironmentFile, folder / "environment.previous.json");
  records_ = {};
}

Json ResultFolder::environment() const { return read_environment(path_); }

void ResultFolder::write_environment(const Json& environment) {
  replace_file(path_, kEnvironmentFile, environment.dump(2) + "\n");
}

void ResultFolder::write_schema(const Json& diagnostics) const {
  const auto text = schema_json(diagnostics).dump(2) + "\n";
  constexpr size_t kMaxBytes = size_t{16} << 20;
  const auto path = (std::filesystem::path(path_) / kSchemaFile).string();
  if (!std::filesystem::exists(path) || read_text_file(path, kMaxBytes) != text) replace_file(path_, kSchemaFile, text);
}

void ResultFolder::write_csv() const {
  record_log_.check_in_place();
  replace_file(path_, "records.csv", records_csv(records()));
}

}  // namespace attnbench
