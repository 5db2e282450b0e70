// Settings files of trainings (TOML):
//
//   description = "…"
//   [task]
//   task = "copy"
//   length = 128
//   [model]
//   method = ["softmax", "linear"]   # a list trains one model for each value
//   layers = 4
//   [training]
//   seed = [0, 1, 2]
//   updates = 10000
//
//   [methods.softmax]                # values for this method alone
//   batch = 16
//
// The fields and their sections are those of training_fields(). An axis may have a list of values.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/schema/training.h"
#include "harness/sweep/catalogue.h"

namespace attnbench {

class TrainingFile {
 public:
  // `settings` are values from the command line that replace those of the file, each a name and a value as in the file. Throws
  // UsageError for anything that is malformed or unknown. The message says where it is ("file:line:column: …", or the option).
  TrainingFile(const std::string& path, const Catalogue& catalogue,
               const std::vector<std::pair<std::string, std::string>>& settings = {});

  const std::string& stem() const { return stem_; }
  const std::string& description() const { return description_; }
  // The trainings of every combination of the axes' values, with the fields that depend on the machine filled in. The methods of
  // one seed come before those of the next, so that a part of the runs already compares all methods.
  const std::vector<Training>& trainings() const { return trainings_; }
  // The path of the data of a training, which the file names from its own folder, and --set from the current folder; empty if
  // there is none.
  std::string data_folder(const Training& training) const;

 private:
  std::string stem_, description_, folder_;
  bool data_is_from_command_line_ = false;
  std::vector<Training> trainings_;
};

}  // namespace attnbench
