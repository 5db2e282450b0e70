// Looks for records.jsonl in a folder and below it, and reads it and processes.jsonl.
#include "harness/records/record_folders.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "harness/records/record_log.h"
#include "harness/records/records_by_case.h"
#include "harness/text/errors.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

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

}  // namespace attnbench
