// A file of records, one as JSON on each line, to which lines are appended.
#pragma once

#include <string>
#include <vector>

#include "harness/records/json_lines.h"
#include "harness/schema/record.h"

namespace attnbench {

// The records of a file, one for each line. Ignores a last line without a line end, which a killed run leaves behind. Throws
// UsageError that names the file, and the line where one is malformed or cannot be used.
std::vector<Record> read_log(const std::string& path);

// A file of records that this process alone may write to as long as the object lives.
class RecordLog {
 public:
  // Makes the file where it is missing, and removes a last line that has no line end. Throws UsageError as read_log() does, and
  // if the file cannot be written.
  RecordLog(const std::string& folder, const std::string& name);

  // The records of all lines, in order.
  const std::vector<Record>& lines() const { return lines_; }

  // Adds a line, which is on disk when this returns. Throws UsageError that names the file if it cannot be written, or if another
  // program has removed, moved or replaced it; the earlier lines then stay complete.
  void append(const Record& record);
  // Replaces all lines in one step. Throws UsageError that names the file if it cannot be written; it then has its old lines.
  void rewrite(std::vector<Record> lines);
  // Renames the file to `name`, which replaces an older file of that name, and starts an empty one.
  void set_aside(const std::string& name);
  // Throws UsageError if the file is no longer the one that this object writes to.
  void check_in_place() const { file_.check_in_place(); }

 private:
  std::vector<Record> lines_;
  JsonLines file_;  // declared last, because its constructor fills the lines
};

}  // namespace attnbench
