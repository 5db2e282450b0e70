// Generation: one measurement of how fast a model generates images. The fields are declared once, in generation_fields(), as
// those of Training are in training.h. A record has these fields and what experiments/decoding/generation_speed.h measures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/schema/field.h"
#include "harness/schema/record.h"

namespace attnbench {

struct Generation {
  // Axes: what is measured.
  std::string dataset = "mnist";
  std::string method;
  int64_t batch = 1;
  std::string device = "cpu";
  int64_t threads = 0;  // 0 until complete(), which sets it to the number of processors that this process may use

  // The model.
  int64_t length = 783;
  int64_t layers = 8;
  int64_t heads = 8;
  int64_t head_dim = 32;

  // The measurement.
  std::string sampler = "as-likelihood";
  int64_t processes = 3;
  double whole_s = 60;
  int64_t positions = 12;
  double time_budget_s = 1;
  double max_token_s = 10;
  double deadline_s = 600;

  // Fills in the fields that depend on the machine.
  void complete();
};

using GenerationField = FieldOf<Generation>;
// Every field of Generation, in the order of tables.
const std::vector<GenerationField>& generation_fields();

Json to_json(const Generation& generation);
// The generation that a request or a record describes. Fields that it lacks have their defaults, and columns that are not fields
// of Generation are ignored. Throws std::invalid_argument that names a wrong value.
Generation generation_of(const Json& record);
// Throws std::invalid_argument that says which fields do not fit together.
void check(const Generation& generation);
// axes_text() of a generation.
std::string generation_key(const Generation& generation);

}  // namespace attnbench
