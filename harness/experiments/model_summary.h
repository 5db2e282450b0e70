// Sums up what processes said about models: times with intervals, memory, agreement, and which of the aims hold.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/experiments/model_run.h"
#include "harness/schema/json.h"
#include "harness/statistics/equivalence.h"

namespace attnbench {

// One variant of a timed phase, over its processes.
struct ModelTimes {
  std::vector<double> seconds;  // the median of each process
  double median_s = 0;
  double peak_extra_bytes = 0;  // the median over processes of the memory beyond that of the model
};

// A timed phase of a model. A ratio is of the first to the second, from the rounds that have both; nothing if none has.
struct ModelPhaseSummary {
  std::string name;
  std::optional<ModelTimes> transformers, attnbench, floor;
  std::optional<RatioEstimate> speedup;   // the time of transformers to that of this project
  std::optional<RatioEstimate> to_floor;  // the time of this project to that of the floor
};

// Where the time of one training step goes.
struct ModelPart {
  std::string name;                            // of a class of layers' parts; empty for the rest
  double transformers_s = 0, attnbench_s = 0;  // forward and backward; NaN if not measured
};

struct ModelSummary {
  ModelEntry model;
  double parameters = 0;
  std::vector<ModelPhaseSummary> phases;
  double logits_error = 0;  // the largest error as a share of the largest logit; NaN if not measured
  double losses_error = 0;  // the largest relative error of the losses; NaN if not measured
  size_t steps = 0;         // of which the losses were compared
  std::vector<ModelPart> parts;
  Json passed_on;  // by operator: how many calls were passed on in the processes of this project, by reason

  const ModelPhaseSummary* phase(const std::string& name) const;
};
// The models of which any process was measured, in the order of `models`.
std::vector<ModelSummary> model_summaries(const std::vector<ModelEntry>& models, const std::vector<Json>& records);

// An aim, and whether the measurements reach it.
struct ModelAim {
  std::string text;     // such as "qwen3.5: a training step is at least 2 times as fast"
  std::string found;    // such as "2.4 (2.3 to 2.5)"
  std::string verdict;  // "reached", "reached by the estimate alone", "missed" or "not measured"
};
std::vector<ModelAim> model_aims(const std::vector<ModelSummary>& summaries);

// What the figure reads.
Json to_json(const std::vector<ModelSummary>& summaries, const std::vector<ModelAim>& aims, const ModelSettings& settings);

}  // namespace attnbench
