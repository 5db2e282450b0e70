// A folder of results. records.jsonl holds one record a line and grows as cases end. Beside it are records.csv, environment.json
// (the build, the machine and the settings) and schema.json (what the axes and columns of the records are).
#pragma once

#include <string>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

// The records of a folder or of one records.jsonl: the last record of each case, in the order in which the cases first appear.
// Passes over a torn last line, which a killed run leaves behind. Throws UsageError with file and line for any other malformed
// line.
std::vector<Record> read_records(const std::string& folder_or_file);

// The folder's environment.json; null when there is none. Throws UsageError when it is not a JSON object.
Json read_environment(const std::string& folder);

// Closes its file when it is destroyed.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  ~FileDescriptor();
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  // Closes the file that was open before. Throws UsageError naming the path, also when it is a symbolic link, which could lead
  // out of the folder.
  void open(const std::string& path, int flags);
  operator int() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// Makes the folder and the folders above it. Throws UsageError naming it.
void make_folder(const std::string& path);

// Replaces a file of the folder in one step, so that nobody reads half of it. Throws UsageError naming the file, and leaves the
// one that was there. Writes nothing through a symbolic link.
void replace_file(const std::string& folder, const std::string& name, const std::string& text);

// A folder that no other process writes to as long as this object lives.
class ResultFolder {
 public:
  // Makes the folder, and cuts a torn last line off its records. Throws UsageError naming the process that has the folder open,
  // or the file that cannot be written.
  explicit ResultFolder(std::string path);
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<Record>& records() const { return records_; }
  const Record* find(const std::string& key) const;

  // The record is on disk when this returns. Throws UsageError naming the file; earlier records stay whole.
  void append(const Record& record);

  // Moves the records to records.previous.jsonl, replacing an older one, and starts without records.
  void set_aside();

  // Null when there is none yet.
  Json environment() const;
  void write_environment(const Json& environment);
  // Writes schema.json; `diagnostics` as for schema_json().
  void write_schema(const Json& diagnostics) const;
  // Writes all records to records.csv.
  void write_csv() const;

 private:
  std::string path_;
  FileDescriptor lock_, log_;
  std::vector<Record> records_;
};

// Records of one folder must come from the same build, machine and settings. Returns a line for each value of the environment and
// the settings in `now` that differs from `before`; both are contents of an environment.json.
std::string provenance_differences(const Json& before, const Json& now);

// The contents of records.csv: the columns of table_columns() without lists of samples, which stay in records.jsonl. Text that a
// spreadsheet would take for a formula is neutralised.
std::string records_csv(const std::vector<Record>& records);

}  // namespace attnbench
