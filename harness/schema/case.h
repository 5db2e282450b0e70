// Case: what is measured, and under which limits. Its fields are declared once, in `fields()`. The command line, sweep files,
// records, tables, analyses, figures and the messages between driver and worker are made from that table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/schema/field.h"

namespace attnbench {

// The number of calls of a case whose instructions a profiler counts.
inline constexpr int64_t kCountedCalls = 100;

struct Case {
  // Axes: what is measured. Two records with equal axes are records of the same case.
  std::string method;
  std::string device = "cpu";
  std::string dtype = "float32";
  std::string protocol = "forward";
  int64_t batch = 1;
  int64_t heads = 8;
  int64_t kv_heads = 0;     // 0 until complete(), which sets it to heads
  int64_t value_heads = 0;  // 0 until complete(), which sets it to kv_heads
  int64_t query_len = 1024;
  int64_t key_len = 0;  // 0 until complete(), which sets it to query_len
  int64_t head_dim = 64;
  int64_t value_dim = 0;  // 0 until complete(), which sets it to head_dim
  bool causal = false;
  std::string key_lengths = "full";
  std::string pattern = "all";
  std::string packed = "none";
  bool sinks = false;
  std::string inputs = "normal";
  double concentration = 1;
  double decay_positions = 20;
  int64_t threads = 0;  // 0 until complete(), which divides the processors that this process may use by the ranks
  int64_t ranks = 1;
  std::string cache = "warm";
  std::string allocation = "kept";
  bool graph = false;
  int64_t seed = 0;

  // Settings: the limits of the case, and when to stop sampling.
  int64_t memory_limit_bytes = 0;  // 0: the available memory, which complete() fills in for the CPU and the worker for a GPU
  double deadline_s = 120;
  double warmup_s = 0.05;
  int64_t min_samples = 5;
  double noise_target = 0.01;
  double time_budget_s = 2;
  int64_t processes = 1;
  std::string baseline;  // empty: none
  double max_disturbance = 0.25;
  int64_t quality_seeds = 5;
  double injected_slowdown_percent = 0;

  // Fills in the fields that were not given, from other fields or from the machine. Sets `causal` for the protocols that decode.
  void complete();
  // The case, once complete, at a size that is verified within a fraction of a second: at most two batch entries, three heads (or
  // three groups of heads that share keys or values), and so many positions.
  Case small(int64_t max_length) const;
  // Whether the protocol uses a decoding state.
  bool decodes() const { return protocol == "prefill" || protocol == "decode"; }
};

using Field = FieldOf<Case>;
// Every field of Case, in the order of tables.
const std::vector<Field>& fields();
// Null when there is no such field.
const Field* find_field(std::string_view name);
// Null when there is no such field or it is a setting.
const Field* find_axis(std::string_view name);
std::vector<std::string> axis_names();

// Whether the field has the value that it would have after complete() if nobody had set it.
bool is_default(const Case& c, const Field& field);

// The case that takes turns with `c`, as c.baseline says: the same axes, but the baseline's method, and the axes that follow it
// as "axis=value" words. It may equal the case, which then takes turns with a second process of its own. Nothing if there is no
// baseline. Throws std::invalid_argument that names what is wrong in c.baseline.
std::optional<Case> baseline_of(const Case& c);

// Every field by name; test hooks only where they were set.
Json to_json(const Case& c);
// Fields that `json` lacks have their defaults. Throws std::invalid_argument that names an unknown field or a wrong value, or
// that says that the method is missing.
Case case_from_json(const Json& json);

// The axes in the JSON of a case or of a record as one line of text, without its other members. Two lines are equal exactly when
// all axes are.
std::string case_key(const Json& case_or_record);
// Appends what case_key() says about the axis with this value.
void append_to_case_key(std::string& key, const Field& axis, const Json& value);

}  // namespace attnbench
