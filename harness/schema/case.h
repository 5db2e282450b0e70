// One case: what is to be measured, under what limits. Its fields are declared once, in `fields()`; the command line,
// sweep files, records, and both programs' JSON are made from that table.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace attnbench {

using Json = nlohmann::ordered_json;

// Calls whose instructions a profiler counts.
inline constexpr int64_t kCountedCalls = 100;

struct Case {
  // What is measured. Two records of equal axes are of the same case.
  std::string method;
  std::string device = "cpu";
  std::string dtype = "float32";
  std::string protocol = "forward";
  int64_t batch = 1;
  int64_t heads = 8;
  int64_t query_len = 1024;
  int64_t key_len = 0;  // 0 until complete(): as query_len
  int64_t head_dim = 64;
  int64_t value_dim = 0;  // 0 until complete(): as head_dim
  bool causal = false;
  std::string key_lengths = "full";
  std::string inputs = "normal";
  int64_t threads = 0;  // 0 until complete(): every processor this process may use
  std::string cache = "warm";
  std::string allocation = "kept";
  bool graph = false;
  int64_t seed = 0;

  // Under what limits, and when to stop sampling.
  int64_t memory_limit_bytes = 0;  // 0: what is available; on the CPU until complete(), on a GPU until the case is planned
  double deadline_s = 120;
  double warmup_s = 0.05;
  int64_t min_samples = 5;
  double noise_target = 0.01;
  double time_budget_s = 2;
  int64_t processes = 1;
  double injected_slowdown_percent = 0;

  // Fills what follows from other fields or from the machine. Decoding is causal, whatever was said.
  void complete();
  bool decodes() const { return protocol == "prefill" || protocol == "decode"; }
};

enum class FieldRole { axis, setting };

// One field of Case.
struct Field {
  std::string_view name;  // as a record column, a sweep axis and (with dashes) an option of the command line
  FieldRole role;
  std::variant<std::string Case::*, int64_t Case::*, double Case::*, bool Case::*> member;
  std::string_view unit;
  std::string_view description;
  std::vector<std::string_view> choices = {};  // of text fields; empty = any
  double least = 0;                            // of numbers
  std::string_view sweep_key = {};             // of settings: where a sweep file has it, such as "limits.memory"
};

const std::vector<Field>& fields();
// Null when there is no such field.
const Field* find_field(std::string_view name);

Json get(const Case& c, const Field& field);
// Throws std::invalid_argument naming the field, its value and what was expected.
void set(Case& c, const Field& field, const Json& value);
// The same from text as a user writes it.
void set_text(Case& c, const Field& field, const std::string& text);

Json to_json(const Case& c);
Case case_from_json(const Json& json);  // throws std::invalid_argument

// The axes of a case or of a record as one line of text: equal for the same case, different for another.
std::string case_key(const Json& axes_and_more);

}  // namespace attnbench
