#include "harness/schema/record.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <unordered_map>

namespace attnbench {
namespace {

ColumnType type_of(const Field& field) {
  if (std::holds_alternative<std::string Case::*>(field.member)) return ColumnType::text;
  if (std::holds_alternative<bool Case::*>(field.member)) return ColumnType::boolean;
  return std::holds_alternative<int64_t Case::*>(field.member) ? ColumnType::integer : ColumnType::number;
}

std::vector<Column> declare() {
  using enum ColumnType;
  std::vector<Column> all = {{"schema_version", integer, "", "case", "version of this set of columns"}};
  for (const auto role : {FieldRole::axis, FieldRole::setting})
    for (const auto& field : fields())
      if (field.role == role)
        all.push_back({std::string(field.name), type_of(field), std::string(field.unit),
                       role == FieldRole::axis ? "case" : "setting", std::string(field.description)});
  const std::vector<Column> results = {
      {"outcome", text, "", "outcome", "measured, skipped or failed"},
      {"failure_kind", text, "", "outcome",
       "why skipped (unsupported, predicted_oom, predicted_timeout) or failed (oom, invalid, error, crashed, timeout, protocol)"},
      {"reason", text, "", "outcome", "the same in words"},
      {"implementation", text, "", "outcome", "what ran, such as aten/chunked or sdpa/flash_attention"},
      {"implausible", text, "", "outcome", "which ceiling of the machine the time would break, if any"},
      {"external_source", text, "", "outcome", "where a record comes from that was not measured by this program; see import"},
      {"finished_at", text, "", "outcome", "when the record was written, UTC"},
      {"worker_s", number, "s", "outcome", "wall time of the whole case, process start to end"},
      {"measured_s", number, "s", "outcome", "of it, time inside calls of the method: first call, warm-up, samples, memory pass"},

      {"time_first_ms", number, "ms", "time", "first call at this size"},
      {"time_median_ms", number, "ms", "time", "median of the samples, a call; with several processes, of their medians"},
      {"time_q1_ms", number, "ms", "time", "first quartile of the samples"},
      {"time_q3_ms", number, "ms", "time", "third quartile of the samples"},
      {"time_ci_low_ms", number, "ms", "time", "95 % bootstrap interval of that median: low end"},
      {"time_ci_high_ms", number, "ms", "time", "high end"},
      {"time_ci_scope", text, "", "time",
       "what it speaks for: within process (later processes may differ by more), or across processes"},
      {"process_medians_ms", numbers, "ms", "time", "the median of each process, in order, where there are several"},
      {"samples", integer, "", "time", "samples taken; none is dropped"},
      {"calls_per_sample", integer, "", "time", "calls a sample, so that a sample lasts at least 1 ms"},
      {"warmup_calls", integer, "", "time", "calls before the first sample"},
      {"stop_reason", text, "", "time", "why sampling stopped: noise_target, time_budget, or turns with other processes"},
      {"time_per_sample_ms", number, "ms", "time", "median divided by the batch size"},
      {"time_samples_ms", numbers, "ms", "time", "every sample, in order; on a GPU between CUDA events"},
      {"wall_median_ms", number, "ms", "time",
       "on a GPU: median by the host's clock, from before a call is launched until the GPU is idle"},
      {"wall_samples_ms", numbers, "ms", "time", "every sample by that clock"},

      {"input_bytes", integer, "B", "memory",
       "q, k, v, key lengths and, for backward, the gradient of the output; of one token for decode"},
      {"output_bytes", integer, "B", "memory", "the output and, for backward, the gradients of q, k and v"},
      {"state_bytes", integer, "B", "memory", "the decoding state, after the last token"},
      {"saved_bytes", integer, "B", "memory", "what forward keeps alive for backward besides its inputs"},
      {"peak_allocated_bytes", integer, "B", "memory",
       "most memory of tensors alive at once, inputs and decoding state included"},
      {"peak_extra_bytes", integer, "B", "memory",
       "the same above the inputs; for decode the state and what one step takes above it"},
      {"peak_extra_bytes_per_sample", number, "B", "memory", "the same divided by the batch size"},
      {"largest_allocation_bytes", integer, "B", "memory", "largest single allocation"},
      {"peak_reserved_bytes", integer, "B", "memory", "most memory that the GPU's caching allocator held, inputs included"},
      {"peak_rss_bytes", integer, "B", "memory", "largest resident set of the process during the memory pass"},
      {"rss_before_bytes", integer, "B", "memory", "resident set before the memory pass, inputs included"},

      {"max_abs_error", number, "", "agreement", "largest difference from the float64 reference, output and gradients"},
      {"max_rel_error", number, "", "agreement",
       "the same relative to the reference: divided by its largest entry (of a gradient, at least a tenth of all gradients')"},
      {"error_tolerance", number, "", "agreement", "largest max_rel_error that is accepted"},
      {"rows_checked", integer, "", "agreement", "random rows checked at the timed size itself; for decode, of steps"},

      {"approximation_error", number, "", "quality",
       "distance of the output from the attention it approximates, relative to that (Frobenius norms, over the checked rows)"},
      {"lsh_bucket_mean", number, "", "quality", "LSH: mean number of keys in a bucket"},
      {"lsh_bucket_skew", number, "", "quality", "LSH: largest bucket over the mean"},
      {"lsh_top16_share", number, "", "quality", "LSH: share of each query's 16 heaviest keys that are among its candidates"},
      {"lsh_mass_covered", number, "", "quality", "LSH: mass of the exact attention on the candidates of a query"},
      {"rff_least_denominator", number, "", "quality",
       "random features: least absolute value of the denominator over the checked rows"},

      {"flops", number, "", "prediction", "floating-point operations a call, counted from the formula"},
      {"min_bytes", number, "B", "prediction", "least memory traffic a call"},
      {"predicted_peak_bytes", number, "B", "prediction", "predicted peak_allocated_bytes"},
      {"predicted_state_bytes", number, "B", "prediction",
       "state_bytes by the method's formula; a state of another size is invalid"},
      {"predicted_setup_bytes", number, "B", "prediction",
       "decode: the state beside all the tokens that it takes in, before any step"},
      {"min_calls", integer, "", "prediction", "min number of calls of the method that the case makes"},
      {"min_timed_calls", integer, "", "prediction", "of them, those inside samples"},
      {"predicted_time_ms", number, "ms", "prediction", "predicted time of a call"},

      {"published_time_ms", number, "ms", "published", "time published elsewhere for this case"},
      {"published_memory_bytes", number, "B", "published", "memory published elsewhere for this case"},
      {"published_outcome", text, "", "published", "outcome published elsewhere for this case"},
      {"published_source", text, "", "published", "where it was published, and on what machine"},

      {"revision", text, "", "environment", "git revision of the build"},
      {"dirty", boolean, "", "environment", "whether the working tree differed from it"},
      {"build", text, "", "environment", "CPU or CUDA build, and build type"},
      {"compiler", text, "", "environment", "compiler of the build"},
      {"compiler_flags", text, "", "environment", "its flags"},
      {"torch_version", text, "", "environment", "LibTorch"},
      {"cpu_model", text, "", "environment", "processor"},
      {"processors", integer, "", "environment", "processors the driver may use"},
      {"instruction_set", text, "", "environment", "instruction set that LibTorch's kernels chose"},
      {"cpu_governor", text, "", "environment", "frequency governor, where the system tells"},
      {"float32_matmul_precision", text, "", "environment", "LibTorch's setting: highest means no TF32 or bf16 inside"},
      {"gpu", text, "", "gpu", "the GPU's name, for CUDA devices"},
      {"gpu_capability", text, "", "gpu", "its compute capability"},
      {"gpu_driver", text, "", "gpu", "its driver"},
      {"cuda_version", text, "", "gpu", "CUDA runtime of the build"},
      {"gpu_clock_mhz", number, "MHz", "gpu", "clock of its multiprocessors, median of the looks taken between samples"},
      {"gpu_clock_least_mhz", number, "MHz", "gpu", "least of them"},
      {"gpu_memory_clock_mhz", number, "MHz", "gpu", "clock of its memory, median likewise"},
      {"gpu_temperature_c", number, "C", "gpu", "hottest of them, degrees Celsius"},
      {"gpu_power_w", number, "W", "gpu", "power drawn, largest of them"},
      {"gpu_throttle_reasons", text, "", "gpu", "why clocks were held down in any of them, or none"},
  };
  all.insert(all.end(), results.begin(), results.end());
  return all;
}

bool fits(ColumnType type, const Json& value) {
  switch (type) {
    case ColumnType::text: return value.is_string();
    case ColumnType::integer: return value.is_number_integer();
    case ColumnType::number: return value.is_number();
    case ColumnType::boolean: return value.is_boolean();
    case ColumnType::numbers:
      if (!value.is_array()) return false;
      for (const auto& item : value)
        if (!item.is_number() && !item.is_null()) return false;  // null: was not finite
      return true;
  }
  return false;
}

const Json kNull;

}  // namespace

std::string_view type_name(ColumnType type) {
  constexpr std::string_view names[] = {"text", "integer", "number", "boolean", "numbers"};
  return names[size_t(type)];
}

const std::vector<Column>& columns() {
  static const auto all = declare();
  return all;
}

const Column* find_column(std::string_view name) {
  static const auto index = [] {
    std::unordered_map<std::string_view, const Column*> map;
    for (const auto& column : columns()) map.emplace(column.name, &column);
    return map;
  }();
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

Record::Record(const Case& c) {
  set("schema_version", kSchemaVersion);
  const auto values = attnbench::to_json(c);
  for (const auto& [name, value] : values.items()) set(name, value);
  if (c.memory_limit_bytes == 0) set("memory_limit_bytes", nullptr);  // not known yet
}

Record Record::parse(const Json& json) {
  if (!json.is_object()) throw std::invalid_argument("a record is " + std::string(json.type_name()) + ", expected an object");
  const auto version = json.find("schema_version");
  const bool versioned = version != json.end() && version->is_number_integer();
  const bool newer = versioned && version->get<int64_t>() > kSchemaVersion;
  Record record;
  for (const auto& [name, value] : json.items()) {
    if (newer && !find_column(name)) continue;
    record.set(name, value);
  }
  // What was meant before these existed.
  if (versioned && version->get<int64_t>() < kSchemaVersion) {
    if (!record.has("inputs")) record.set("inputs", Case().inputs);
    if (!record.has("allocation")) record.set("allocation", "fresh");
    if (!record.has("graph")) record.set("graph", Case().graph);
  }
  return record;
}

void Record::set(std::string_view name, const Json& value) {
  const auto* column = find_column(name);
  if (!column) throw std::invalid_argument("a record has no column '" + std::string(name) + "'");
  if (value.is_null() || (value.is_number_float() && !std::isfinite(value.get<double>()))) {
    values_.erase(std::string(name));
    return;
  }
  if (!fits(column->type, value))
    throw std::invalid_argument("column " + column->name + " = " + value.dump() + ", expected " +
                                std::string(type_name(column->type)));
  values_[column->name] = value;
}

void Record::set_failed(std::string_view failure_kind, std::string reason) {
  set("outcome", outcome::failed);
  set("failure_kind", failure_kind);
  set("reason", std::move(reason));
}

void Record::set_skipped(std::string_view skip_kind, std::string reason) {
  set("outcome", outcome::skipped);
  set("failure_kind", skip_kind);
  set("reason", std::move(reason));
}

void Record::merge(const Record& other) {
  for (const auto& [name, value] : other.values_.items()) values_[name] = value;
}

const Json& Record::get(std::string_view column) const {
  const auto found = values_.find(column);
  return found == values_.end() ? kNull : *found;
}

double Record::number(std::string_view column) const {
  const auto& value = get(column);
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::string Record::text(std::string_view column) const {
  const auto& value = get(column);
  return value.is_string() ? value.get<std::string>() : std::string();
}

Json Record::to_json() const {
  Json json;
  for (const auto& column : columns()) json[column.name] = get(column.name);
  return json;
}

}  // namespace attnbench
