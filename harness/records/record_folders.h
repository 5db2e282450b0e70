// Finds the folders of records at a path, and reads their records.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/record.h"

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

}  // namespace attnbench
