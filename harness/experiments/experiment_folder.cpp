// Implements the folder of an experiment: locks it, reads its lines, and refuses results of another build or machine.
#include "harness/experiments/experiment_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <utility>

#include "harness/files/installation.h"
#include "harness/files/replace_file.h"
#include "harness/records/environment_file.h"
#include "harness/records/folder_names.h"
#include "harness/records/provenance.h"
#include "harness/sweep/case_plans.h"
#include "harness/text/errors.h"

namespace attnbench {

namespace fs = std::filesystem;

WorkerProgram experiments_beside_this_program() { return {internal_program(program_folder(), "attnbench-experiments").string()}; }

LineReader lines_into(std::vector<Json>& lines, std::function<void(const Json& line)> check) {
  return reader_into(lines, [check = std::move(check)](Json line) {
    if (!line.is_object()) throw std::invalid_argument(fmt::format("it is {}, expected an object", line.type_name()));
    check(line);
    return line;
  });
}

ExperimentFolder::ExperimentFolder(const WorkerProgram& worker, const std::string& name, const std::string& out)
    : name_(name),
      environment_(ask_environment(worker)),
      path_(out.empty() ? default_folder("experiment", name, environment_) : out),
      lock_(path_) {}

std::string ExperimentFolder::path_of(const std::string& file) const { return (fs::path(path_) / file).string(); }

void ExperimentFolder::write_environment(const std::string& description, bool has_results, const std::string& advice) const {
  const Json provenance = {{"experiment", name_},
                           {"description", description},
                           {"environment", environment_columns(environment_)},
                           {"settings", Json::object()}};
  if (const auto before = read_environment(path_); has_results && !before.is_null())
    if (const auto different = provenance_differences(before, provenance, ComparedNames::here); !different.empty())
      throw StaleFolderError(fmt::format("{} holds results of another build or machine:{}\n{}", path_, different, advice));
  replace_file(path_, "environment.json", provenance.dump(2) + "\n");
}

}  // namespace attnbench
