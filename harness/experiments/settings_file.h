// Settings files of experiments (TOML): trainings, and measurements of the speed of generation.
//
//   description = "…"
//   [task]
//   task = "copy"
//   length = 128
//   [model]
//   method = ["softmax", "linear"]   # a list makes one training for each value
//   layers = 4
//   [training]
//   seed = [0, 1, 2]
//   updates = 10000
//   [methods.softmax]                # values for this method alone
//   batch = 16
//
// The fields and their sections are those of training_fields() or generation_fields(). An axis may have a list of values.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/schema/generation.h"
#include "harness/schema/training.h"
#include "harness/sweep/catalogue.h"

namespace attnbench {

// What one settings file says; Owner is Training or Generation.
template <class Owner>
class SettingsFile {
 public:
  // `settings` are values from the command line that replace those of the file, each a name and a value as in the file. Throws
  // UsageError for anything that is malformed or unknown. The message says where it is ("file:line:column: …", or the option).
  SettingsFile(const std::string& path, const Catalogue& catalogue,
               const std::vector<std::pair<std::string, std::string>>& settings = {});

  const std::string& stem() const { return stem_; }
  const std::string& description() const { return description_; }
  // One item for every combination of the axes' values, with the fields that depend on the machine filled in. Fields that are
  // declared later vary more slowly; of trainings, the methods of one seed come before those of the next, so that a part of the
  // runs already compares all methods.
  const std::vector<Owner>& items() const { return items_; }

  // The path of a folder or file that an item names. The file names it from its own folder, and --set from the current one. Empty
  // if `name` is empty.
  std::string path_of(const char* field, const std::string& name) const;

 private:
  std::string stem_, description_, folder_;
  std::vector<std::string> from_command_line_;  // the fields that --set gave
  std::vector<Owner> items_;
};

extern template class SettingsFile<Training>;
extern template class SettingsFile<Generation>;
using TrainingFile = SettingsFile<Training>;
using GenerationFile = SettingsFile<Generation>;

}  // namespace attnbench
