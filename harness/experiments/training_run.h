// Runs the trainings of a settings file, one after another, and records their curves in a folder:
//
//   curves.jsonl       one line for each point of each curve (training_columns())
//   trainings.jsonl    one line for each training that has ended
//   checkpoints/       the last checkpoint of each training
//   environment.json   the build and the machine
//
// A program that is killed loses the updates since the last checkpoint. The next run continues there.
#pragma once

#include <string>
#include <vector>

#include "harness/experiments/experiment_folder.h"
#include "harness/experiments/settings_file.h"

namespace attnbench {

inline constexpr auto kCurvesFile = "curves.jsonl";
inline constexpr auto kTrainingsFile = "trainings.jsonl";
inline constexpr auto kCheckpointsFolder = "checkpoints";

// Is told what happens while trainings run.
class TrainingObserver {
 public:
  // The `number`-th of `of` trainings.
  struct Place {
    size_t number, of;
  };
  virtual ~TrainingObserver() = default;
  // `update` is where the training continues; 0 if it begins.
  virtual void starting(const Place& place, const Training& training, int64_t update) = 0;
  virtual void reached(const Place& place, const Training& training, const Json& point) = 0;
  virtual void finished(const Place& place, const Training& training, const Json& ended) = 0;
};

// The trainings of a folder that have ended. Throws UsageError that names the file and the line of what cannot be read.
std::vector<Json> read_trainings(const std::string& folder);

// "copy linear seed 0"
std::string title_of(const Training& training);
// The path of the checkpoint of a training in a folder, which is different for each training.
std::string checkpoint_of(const std::string& folder, const Training& training);
// A method as part of a file name: without its options, unless another of these trainings has the same method with other options.
std::string method_in_file_names(const std::string& method, const std::vector<Json>& trainings);

class TrainingRun {
 public:
  // `out` is the folder; empty text stands for results/NAME/MACHINE. With `anew`, trainings that have ended or have checkpoints
  // begin again. Throws UsageError that says what differs if the folder's records come from another build or machine, or if one
  // of the trainings has points there with other settings (except `updates`, which may grow).
  TrainingRun(const WorkerProgram& worker, WorkerProgram trainer, TrainingFile file, const std::string& out, bool anew);

  const std::string& folder() const { return folder_.path(); }
  const std::vector<Json>& curves() const { return points_; }
  const std::vector<Json>& ended() const { return ended_; }
  // The number of trainings that have not ended.
  size_t due() const;

  // Runs the trainings that are due. Returns how many failed. Throws Interrupted on SIGINT or SIGTERM, after the trainer has
  // written a checkpoint, and before anything is trained UsageError that names a folder of data which is missing.
  size_t train(TrainingObserver& observer);

 private:
  void check_settings() const;
  void check_data(const Training& training) const;
  const Json* find_ended(const Training& training) const;
  Json run(const Training& training, const TrainingObserver::Place& place, TrainingObserver& observer);

  WorkerProgram trainer_;
  TrainingFile file_;
  ExperimentFolder folder_;
  std::vector<Json> points_, ended_;
  JsonLines curve_file_, ended_file_;  // declared after the lists, which their constructors fill
  bool anew_;
};

}  // namespace attnbench
