// The folder of an experiment's results: its files of JSON lines, and environment.json, which says where they come from.
#pragma once

#include <string>
#include <vector>

#include "harness/process/worker_process.h"
#include "harness/records/folder_lock.h"
#include "harness/records/json_lines.h"
#include "harness/schema/record.h"

namespace attnbench {

// The program attnbench-experiments that belongs to the running program (installation.h).
WorkerProgram experiments_beside_this_program();

// Makes each line an element of `lines`. Its errors are std::invalid_argument: a line that is no object, or what `check` throws
// for it. Several threads call `check` at once.
LineReader lines_into(std::vector<Json>& lines, std::function<void(const Json& line)> check);

class ExperimentFolder {
 public:
  // Locks the folder `out`, or results/NAME/MACHINE if `out` is empty, and makes it where it is missing. Throws UsageError that
  // names the process that has locked it.
  ExperimentFolder(const WorkerProgram& worker, const std::string& name, const std::string& out);

  const std::string& path() const { return path_; }
  // The path of a file in the folder.
  std::string path_of(const std::string& file) const;

  // Writes environment.json with the build, the machine, `name` and `description`. If the folder has results, as `has_results`
  // says, throws UsageError that names what differs from what environment.json says of them; `advice` ends the message.
  void write_environment(const std::string& description, bool has_results, const std::string& advice) const;

 private:
  std::string name_;
  Record environment_;
  std::string path_;
  FolderLock lock_;
};

}  // namespace attnbench
