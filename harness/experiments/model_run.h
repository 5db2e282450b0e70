// Measures small models of the package transformers, alone and with the operators of this project, in processes of Python. What
// one process measures, python/attnbench/models/worker.py defines.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "harness/experiments/experiment_folder.h"
#include "harness/process/worker_process.h"
#include "harness/records/json_lines.h"
#include "harness/schema/json.h"

namespace attnbench {

inline constexpr auto kModelsExperiment = "models";
// The file of a folder with a line for each process, and the one that sums them up for the figure.
inline constexpr auto kModelProcessesFile = "processes.jsonl";
inline constexpr auto kModelSummaryFile = "models.json";

// What runs: transformers alone, transformers with the operators of this project, and the latter with an operator that computes
// nothing, which no operator can be faster than.
namespace model_variant {
inline constexpr auto transformers = "transformers";
inline constexpr auto attnbench = "attnbench";
inline constexpr auto floor = "floor";
}  // namespace model_variant

// How models are measured. Those but `rounds`, `deadline_s` and `minutes` are settings of each process.
struct ModelSettings {
  int tokens = 2048;    // of the sequence of a training step and of a prefill
  int generated = 128;  // tokens
  int repeats = 3;      // of what a process times, after one that does not count
  int steps = 50;       // of the trainings whose losses are compared
  int threads = 0;      // of PyTorch; 0 for its default
  bool tiny = false;    // models that take a fraction of a second, for tests
  int rounds = 6;       // the processes of each variant of what is timed
  double deadline_s = 1800;
  double minutes = std::numeric_limits<double>::infinity();  // after which no process is started
};
Json process_settings(const ModelSettings& settings);

// A model that can be measured, as the Python package describes it.
struct ModelEntry {
  std::string name, shaped_like, scale, op;
  // What is measured about it, in this order, and whether that is timed in rounds or done once.
  struct Phase {
    std::string name;
    std::vector<std::string> variants;
    bool is_timed = false;
  };
  std::vector<Phase> phases;
};
// What the Python package can measure, and the versions that it would measure.
struct ModelCatalogue {
  std::vector<ModelEntry> models;
  Json versions;
};
// Throws UsageError that says what is missing, such as the package transformers.
ModelCatalogue ask_models(const WorkerProgram& python);

// The process that measures one variant of a phase of a model.
struct ModelProcess {
  std::string model, phase, variant;
  int round = 1;
  bool operator==(const ModelProcess&) const = default;
};
ModelProcess model_process_of(const Json& record);

class ModelRunObserver {
 public:
  virtual ~ModelRunObserver() = default;
  // The `number`-th of `of` processes begins.
  virtual void starting(size_t number, size_t of, const ModelProcess& process) = 0;
  virtual void finished(size_t number, size_t of, const Json& record) = 0;
};

class ModelRun {
 public:
  // `models` are those of the catalogue to measure. `out` is the folder; empty text stands for results/models/MACHINE. Throws
  // UsageError that says what differs if the folder's records come from another build or machine, or from other versions.
  ModelRun(const WorkerProgram& worker, WorkerProgram python, const ModelCatalogue& catalogue, std::vector<ModelEntry> models,
           ModelSettings settings, const std::string& out);

  const std::string& folder() const { return folder_.path(); }
  std::string path_of(const std::string& file) const { return folder_.path_of(file); }
  // The records of processes with these settings, of any model.
  std::vector<Json> records() const;
  // The processes that have not been measured yet, in the order in which they are: all agreements first, then the rounds, in each
  // of which the variants of a phase follow each other in a random order.
  std::vector<ModelProcess> due() const;

  // Measures what is due until the minutes have passed. Returns the number of processes that failed, which are due again the next
  // time. Throws Interrupted on SIGINT or SIGTERM.
  size_t measure(ModelRunObserver& observer);

 private:
  bool is_measured(const ModelProcess& process) const;
  Json run(const ModelProcess& process) const;

  WorkerProgram python_;
  Json versions_;
  std::vector<ModelEntry> models_;
  ModelSettings settings_;
  ExperimentFolder folder_;
  std::vector<Json> records_;
  JsonLines file_;  // declared after the list, which its constructor fills
};

}  // namespace attnbench
