// Training: one training run of an experiment, and TrainingPoint: what is known of it after some of its updates. The fields of
// Training are declared once, in training_fields(), and the columns of the points in training_columns(). Settings files, messages
// between driver and trainer, records and tables are made from these tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/schema/field.h"
#include "harness/schema/record.h"

namespace attnbench {

struct Training {
  // Axes: what is trained. Two points with equal axes belong to the same run.
  std::string task = "copy";
  std::string method;
  int64_t seed = 0;
  std::string device = "cpu";
  int64_t threads = 0;  // 0 until complete(), which sets it to the number of processors that this process may use

  // The task. Fields of other tasks are ignored.
  std::string data;  // folder of the data; empty for data that the task makes
  int64_t length = 128;
  int64_t symbols = 10;
  int64_t min_copied = 32;
  int64_t max_copied = 62;
  int64_t gap = 0;
  int64_t training_utterances = 400;
  int64_t validation_utterances = 80;
  int64_t phones = 40;
  double mean_frames = 800;
  int64_t max_frames = 2400;

  // The model.
  int64_t layers = 4;
  int64_t heads = 8;
  int64_t head_dim = 32;
  int64_t hidden = 320;
  double dropout = 0.1;
  std::string pattern = "all";

  // The training.
  int64_t updates = 10000;
  double seconds = 0;
  int64_t batch = 64;
  std::string optimizer = "radam";
  double learning_rate = 1e-3;
  std::string schedule = "constant";
  int64_t reduce_after = 3000;
  double reduced_learning_rate = 1e-4;
  int64_t patience = 0;
  double min_learning_rate = 0;
  double weight_decay = 0.01;
  double max_gradient_norm = 1;
  int64_t validate_every = 100;
  int64_t validation_batches = 10;
  int64_t validation_items = 0;
  int64_t checkpoint_every = 500;
  int64_t epoch_items = 0;

  // Fills in the fields that depend on the machine.
  void complete();
};

using TrainingField = FieldOf<Training>;
// Every field of Training, in the order of tables.
const std::vector<TrainingField>& training_fields();

Json to_json(const Training& training);
// The training that a request or a line of a curve describes. Fields that it lacks have their defaults, and columns that are not
// fields of Training are ignored. Throws std::invalid_argument that names a wrong value, or says which fields do not fit
// together.
Training training_of(const Json& line);
// Throws std::invalid_argument that says which fields do not fit together, such as min_copied above max_copied.
void check(const Training& training);

// The method that stands for the Bi-LSTM, which has no attention.
inline constexpr auto kBiLstm = "bi-lstm";

// axes_text() of a training.
std::string training_key(const Training& training);

// The columns of one point of a curve: the fields of Training, and what was measured up to this update.
const std::vector<Column>& training_columns();

}  // namespace attnbench
