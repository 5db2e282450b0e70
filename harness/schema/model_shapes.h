// Shapes of attention in released models, by name: the numbers of heads, their dimensions and the pattern.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/schema/json.h"

namespace attnbench {

struct ModelShape {
  std::string_view name;
  int64_t heads, kv_heads, value_heads, head_dim, value_dim;
  std::string_view pattern;  // for causal attention, as all of these models have it
  bool sinks;                // whether each head has a learned sink
  std::string_view description;
  std::string_view source;
};

const std::vector<ModelShape>& model_shapes();

// Throws std::invalid_argument for an unknown name and lists the known ones.
const ModelShape& find_model_shape(std::string_view name);

// The axes that a shape sets, each with its value, in the order in which fields() declares them.
std::vector<std::pair<std::string_view, Json>> axes_of(const ModelShape& shape);

}  // namespace attnbench
