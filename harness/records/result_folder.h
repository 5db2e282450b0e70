// A folder of results. processes.jsonl has a line for each process that measured a case, and records.jsonl a record for each
// case, which is made from its processes. Beside them are records.csv, environment.json (the build, the machine and the settings)
// and schema.json (the axes and columns of the records).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "harness/records/folder_lock.h"
#include "harness/records/record_log.h"
#include "harness/records/records_by_case.h"
#include "harness/schema/record.h"

namespace attnbench {

// A result folder that this process alone may write to as long as the object lives.
class ResultFolder {
 public:
  // Makes the folder where it is missing, and removes last lines that have no line end. Throws UsageError that names the process
  // that has locked the folder, or the file that cannot be written.
  explicit ResultFolder(std::string path);
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<Record>& records() const { return records_.records(); }
  const Record* find(const std::string& key) const { return records_.find(key); }
  // The records of single processes, in the order in which these ended.
  const std::vector<Record>& processes() const { return process_log_.lines(); }

  // Adds the record of a case, or replaces the earlier one. It is on disk when this returns. Throws as RecordLog::append() does.
  void append(const Record& record);
  // Adds the record of one process, in the same way.
  void append_process(const Record& line) { process_log_.append(line); }
  // Removes the lines of the processes of the cases with these keys, so that the cases are measured anew.
  void drop_processes(const std::set<std::string>& keys);

  // Writes records.jsonl again with one line for each case: first the cases with these keys, in this order, then all others.
  void arrange(const std::vector<std::string>& keys);

  // Renames records.jsonl to records.previous.jsonl, and processes.jsonl and environment.json in the same way, which replaces
  // older files of these names. Starts without records, and without the ceilings of another machine or build.
  void set_aside();

  // The contents of environment.json; null when there is none yet.
  Json environment() const;
  void write_environment(const Json& environment);
  // Writes schema.json if its contents would change; `diagnostics` is the argument of schema_json().
  void write_schema(const Json& diagnostics) const;
  // Writes all records to records.csv.
  void write_csv() const;

 private:
  std::string path_;
  FolderLock lock_;
  RecordLog record_log_, process_log_;
  RecordsByCase records_;
};

}  // namespace attnbench
