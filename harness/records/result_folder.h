// A folder of results. processes.jsonl has a line for each process that measured a case, and records.jsonl a record for each
// case, which is made from its processes. Beside them are records.csv, environment.json (the build, the machine and the settings)
// and schema.json (the axes and columns of the records).
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "harness/records/record_log.h"
#include "harness/schema/record.h"
#include "harness/text/file_descriptor.h"

namespace attnbench {

inline constexpr auto kRecordsFile = "records.jsonl";
inline constexpr auto kProcessesFile = "processes.jsonl";

// The records of a folder or of one records.jsonl: the last record of each case, in the order in which the cases first appear.
// Ignores a last line without a line end, which a killed run leaves behind. Throws UsageError that names the file, and the line
// where one is malformed.
std::vector<Record> read_records(const std::string& folder_or_file);

// The folders of records at a path: the path itself if it is a file or a folder that holds records.jsonl, or else the folders
// below it that do, such as one for each machine, in alphabetical order. Throws UsageError as read_records() does if there is
// none.
std::vector<std::string> record_folders(const std::string& path);
// The only folder of records at a path, for what takes one alone. Throws UsageError that names them if there are several.
std::string record_folder(const std::string& path);

// The lines of the folder's processes.jsonl; none if there is no such file. Throws UsageError as read_records() does.
std::vector<Record> read_processes(const std::string& folder);

// The contents of the folder's environment.json; null when there is none. Throws UsageError when it is not a JSON object whose
// `environment` and `settings` are objects.
Json read_environment(const std::string& folder);
// The same for the text of that file; `path` names it in messages.
Json parse_environment(const std::string& path, std::string_view text);

// The columns of `environment` that describe the build and the machine, as environment.json holds them.
Json environment_columns(const Record& environment);
// The text as the name of a folder: its letters and digits in lower case, with a hyphen for each run of other characters.
std::string folder_name(const std::string& text);
// The name of the folder for this machine, such as "intel-r-xeon-r-processor-2-threads".
std::string machine_slug(const Record& environment);
// The folder for the results of a sweep or an experiment of this name on this machine: "results/NAME/MACHINE". `what` is "sweep"
// and so on. Throws UsageError for a name that cannot be that of a folder.
std::string default_folder(const std::string& what, const std::string& name, const Record& environment);

// Makes the folder and the folders above it where they are missing. Throws UsageError that names the folder if this fails.
void make_folder(const std::string& path);

// The last record of each case, in the order in which the cases first appear.
class RecordsByCase {
 public:
  RecordsByCase() = default;
  explicit RecordsByCase(std::vector<Record> lines);

  const std::vector<Record>& records() const { return records_; }
  // The records, after which this has none.
  std::vector<Record> take_records();
  // The record with this Record::key(), or null.
  const Record* find(const std::string& key) const;
  // Adds the record, or replaces the record of the same case.
  void put(Record record);

 private:
  std::vector<Record> records_;
  std::unordered_map<std::string, size_t> index_;  // of each record by its key
};

// Keeps other processes from writing to a folder as long as it exists.
class FolderLock {
 public:
  // Makes the folder where it is missing. Throws UsageError that names the process that has locked it.
  explicit FolderLock(const std::string& folder);

 private:
  FileDescriptor file_;
};

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

  // Renames records.jsonl and processes.jsonl to records.previous.jsonl and processes.previous.jsonl, which replaces older files
  // of these names, and starts without records.
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

// Which names of two contents of environment.json are compared: those of `here`, or those of both.
enum class ComparedNames { here, both };
// The differences between two contents of environment.json, since all records of a folder must come from the same build, machine
// and settings. One line of text for each value of the environment and the settings that differs; empty where none differs.
std::string provenance_differences(const Json& there, const Json& here, ComparedNames compared);
// Compares the records with the provenance in order, and returns the differences of the first record that has any, as text of the
// same form. External records are left out.
std::string record_differences(const Json& provenance, const std::vector<Record>& records);

// The digests of the files that these records depend on, by "method_digest of METHOD" (empty text for a method that is part of
// attnbench) and "inputs_digest of INPUTS" (only for inputs from a file). External records are left out.
using FileDigests = std::map<std::string, std::string>;
FileDigests file_digests(const std::vector<Record>& records);
// The files that differ, since a changed file of a method is another build, and one of inputs another case: a line of text for
// each that both have with different digests; empty if there is none.
std::string digest_differences(const FileDigests& there, const FileDigests& here);

// The contents of records.csv: the columns of table_columns() without those that hold lists, such as the samples, which only
// records.jsonl has. Text that a spreadsheet would take for a formula is changed as in csv_text().
std::string records_csv(const std::vector<Record>& records);
// The names of the columns that records_csv() leaves out although one of the records has a value there.
std::vector<std::string> left_out_of_csv(const std::vector<Record>& records);

}  // namespace attnbench
