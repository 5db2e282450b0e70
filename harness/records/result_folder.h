// A folder of results: records.jsonl, one record a line, appended as cases end; records.csv and environment.json beside it.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

// The records of a folder (or of one records.jsonl), the last of each case, in the order of their first appearance. A torn
// last line, as a killed run leaves it, is passed over. Throws UsageError with file and line for anything else malformed.
std::vector<Record> read_records(const std::string& folder_or_file);

// The folder's environment.json; null when there is none. Throws UsageError when it is no JSON object.
Json read_environment(const std::string& folder);

// Closes its file when it goes.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  ~FileDescriptor();
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  // Closes what was open. Throws UsageError naming the path, also for a symbolic link: it could lead out of the folder.
  void open(const std::string& path, int flags);
  operator int() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// With the folders above it. Throws UsageError naming it.
void make_folder(const std::string& path);

// The folder's file in one step, so that nobody sees half of it. Throws UsageError naming it; the one before stays then. Nothing
// is written through a symbolic link.
void replace_file(const std::string& folder, const std::string& name, const std::string& text);

// A folder that this process alone writes to.
class ResultFolder {
 public:
  // Makes the folder, and cuts a torn last line off its records. Throws UsageError naming the process that has it open, or
  // the file that cannot be written.
  explicit ResultFolder(std::string path);
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<Record>& records() const { return records_; }
  const Record* find(const std::string& key) const;

  // On disk when it returns. Throws UsageError naming the file; earlier records stay whole.
  void append(const Record& record);

  // Moves the records to records.previous.jsonl, over what is there, and begins anew.
  void set_aside();

  // Null when there is none yet.
  Json environment() const;
  void write_environment(const Json& environment);
  // records.csv from all records; replaced in one step.
  void write_csv() const;

 private:
  std::string path_;
  FileDescriptor lock_, log_;
  std::vector<Record> records_;
};

// Records that stand together must have come about alike: what in `now` differs from `before` of the environment and settings
// that environment.json holds, a line each; empty when nothing does.
std::string provenance_differences(const Json& before, const Json& now);

// The cell of one record in records.csv: plain numbers, text neutralised.
std::string csv_cell(const Record& record, const Column& column);
std::string records_csv(const std::vector<Record>& records);

}  // namespace attnbench
