// A folder of results. records.jsonl holds one record per line and grows as cases end. Beside it are records.csv,
// environment.json (the build, the machine and the settings) and schema.json (the axes and columns of the records).
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "harness/schema/record.h"
#include "harness/text/file_descriptor.h"

namespace attnbench {

// The records of a folder or of one records.jsonl: the last record of each case, in the order in which the cases first appear.
// Ignores a last line without a line end, which a killed run leaves behind. Throws UsageError that names the file, and the line
// where one is malformed.
std::vector<Record> read_records(const std::string& folder_or_file);

// The contents of the folder's environment.json; null when there is none. Throws UsageError when it is not a JSON object whose
// `environment` and `settings` are objects.
Json read_environment(const std::string& folder);
// The same for the text of that file; `path` names it in messages.
Json parse_environment(const std::string& path, std::string_view text);

// Makes the folder and the folders above it where they are missing. Throws UsageError that names the folder if this fails.
void make_folder(const std::string& path);

// Replaces a file of the folder in one step, so that nobody reads half of it. Where this fails, throws UsageError that names the
// file, and leaves the old file as it was. Writes nothing through a symbolic link.
void replace_file(const std::string& folder, const std::string& name, const std::string& text);

// A result folder that this process alone may write to as long as the object lives.
class ResultFolder {
 public:
  // Makes the folder where it is missing, and removes a last line of records.jsonl that has no line end. Throws UsageError that
  // names the process that has locked the folder, or the file that cannot be written.
  explicit ResultFolder(std::string path);
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<Record>& records() const { return records_; }
  // The record with this Record::key(), or null.
  const Record* find(const std::string& key) const;

  // Adds the record, or replaces the record of the same case. It is on disk when this returns. Throws UsageError that names the
  // file where it cannot be written, or where another program has removed, moved or replaced it; the earlier records then stay
  // complete.
  void append(const Record& record);

  // Renames records.jsonl to records.previous.jsonl, which replaces an older file of that name, and starts without records.
  void set_aside();

  // The contents of environment.json; null when there is none yet.
  Json environment() const;
  void write_environment(const Json& environment);
  // Writes schema.json if its contents would change; `diagnostics` is the argument of schema_json().
  void write_schema(const Json& diagnostics) const;
  // Writes all records to records.csv.
  void write_csv() const;

 private:
  // Throws UsageError if records.jsonl is no longer the file that this object writes to.
  void check_log_is_in_place() const;

  std::string path_;
  FileDescriptor lock_, log_;
  std::vector<Record> records_;
  std::unordered_map<std::string, size_t> index_;  // of each record by its key
};

// Which names of two contents of environment.json are compared: those of `here`, or those of both.
enum class ComparedNames { here, both };
// The differences between two contents of environment.json, since all records of a folder must come from the same build, machine
// and settings. One line of text for each value of the environment and the settings that differs; empty where none differs.
std::string provenance_differences(const Json& there, const Json& here, ComparedNames compared);
// The values of the environment and the settings in which the first record that differs from this provenance does so, as text of
// the same form; empty where none differs. External records are left out.
std::string record_differences(const Json& provenance, const std::vector<Record>& records);

// The contents of records.csv: the columns of table_columns() without those that hold lists, such as the samples, which only
// records.jsonl has. Text that a spreadsheet would take for a formula is changed as in csv_text().
std::string records_csv(const std::vector<Record>& records);

}  // namespace attnbench
