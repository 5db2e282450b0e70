// Declares the columns of records, and reads records of this and earlier schemas.
#include "harness/schema/record.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace attnbench {
namespace {

Column column_of(const Field& field) {
  return {std::string(field.name), type_of(field), std::string(field.unit), field.role == FieldRole::axis ? "case" : "setting",
          std::string(field.description)};
}

std::vector<Column> declare() {
  using enum ColumnType;
  std::vector<Column> all = {{"schema_version", integer, "", "case", "version of this set of columns"}};
  const auto add_fields = [&](FieldRole role) {
    for (const auto& field : fields())
      if (field.role == role && !field.test_hook) all.push_back(column_of(field));
  };
  add_fields(FieldRole::axis);
  all.push_back({"method_digest", text, "", "case", "hex digest of the file of a Python method or of a plug-in"});
  all.push_back({"method_label", text, "", "case",
                 "what stands for the text of a Python method in tables and figures, where it has a label"});
  all.push_back(
      {"inputs_digest", text, "", "case",
       "hex digest of the file that the inputs come from: its SHA-1 or, if it is longer than 64 MiB, the SHA-1 of those of "
       "its blocks of 64 MiB, in hexadecimal digits"});
  add_fields(FieldRole::setting);
  const std::vector<Column> results = {
      {"outcome", text, "", "outcome", "measured, skipped or failed"},
      {"failure_kind", text, "", "outcome",
       "why it was skipped (unsupported, predicted_oom, predicted_timeout) or failed (oom, invalid, error, crashed, timeout, "
       "protocol)"},
      {"failure_field", text, "", "outcome", "in plans of cases that make no sense: the axis or setting with the wrong value"},
      {"reason", text, "", "outcome", "why it was skipped or failed, in words"},
      {"implementation", text, "", "outcome", "implementation that ran, such as aten/chunked or sdpa/flash_attention"},
      {"implausible", text, "", "outcome",
       "for a time shorter than a measured ceiling of the machine allows: that time, the shortest possible time and the ceiling; "
       "for a time far longer than the next shorter and the next longer length suggest: that time, the factor and these lengths"},
      {"suspect", text, "", "outcome", "what makes the time doubtful, such as page faults where memory is kept between calls"},
      {"external_source", text, "", "outcome", "where the record was imported from, if this program did not measure it"},
      {"finished_at", text, "", "outcome", "when the record was written, in UTC"},
      {"worker_s", number, "s", "outcome", "wall time of the whole case, from the start of the process to its end"},
      {"measured_s", number, "s", "outcome",
       "the part of worker_s spent inside calls of the method: first call, warm-up, samples, memory pass"},

      {"process", integer, "", "process",
       "in processes.jsonl: which process of its case this was, from 1; in records.jsonl: how many there were"},
      {"process_start", text, "", "process",
       "how the process began: fresh, as a program; or forked, from a process that has loaded Python and torch, where --forked "
       "asks for that and a method is in Python; after 'fresh: ' stands why it was not forked there"},
      {"settings_restored", text, "", "process",
       "settings of PyTorch or of the process that the import of the method's file or its setup changed, and that were put back"},
      {"round", integer, "", "process", "in processes.jsonl: the round of the sweep, from 1; a round visits each case once"},
      {"place", integer, "", "process", "in processes.jsonl: the place of the case in the random order of that round, from 1"},
      {"host", text, "", "process", "name of the machine; several names are separated by commas"},
      {"boot", text, "", "process", "in processes.jsonl: identifier of the time between two starts of the machine's system"},
      {"boots", integer, "", "process", "number of different boots in which the processes of the case ran, where it is above 1"},

      {"time_first_ms", number, "ms", "time", "time of the first call at this size"},
      {"time_median_ms", number, "ms", "time",
       "median of the samples, for one call; with several processes, median of their medians"},
      {"time_q1_ms", number, "ms", "time",
       "first quartile of the samples that count; with several processes, median of their first quartiles"},
      {"time_q3_ms", number, "ms", "time", "third quartile, in the same way"},
      {"time_ci_low_ms", number, "ms", "time",
       "low end of the interval of time_median_ms: across six processes or more the 95 % interval between order statistics, "
       "across "
       "fewer the range of their medians; of one process the first quartile, because its samples say nothing about other "
       "processes"},
      {"time_ci_high_ms", number, "ms", "time", "high end of that interval, or the third quartile"},
      {"time_ci_scope", text, "", "time",
       "what the interval covers: across processes (95 %), range of processes (of two to five, too few for 95 %), or spread "
       "within "
       "process"},
      {"process_medians_ms", numbers, "ms", "time", "median of each process, in order, where there are several"},
      {"process_q1_ms", numbers, "ms", "time", "first quartile of each process, in the same order"},
      {"process_rounds", numbers, "", "time",
       "the round of each process, in the same order: processes of the same round ran soon after each other, and a disturbed one "
       "is replaced by one of a later round"},
      {"samples", integer, "", "time", "number of samples taken; none is dropped"},
      {"calls_per_sample", integer, "", "time", "number of calls in a sample, chosen so that a sample takes at least 1 ms"},
      {"warmup_calls", integer, "", "time", "number of calls before the first sample"},
      {"stop_reason", text, "", "time",
       "why sampling stopped: noise_target, time_budget, or turns (when the process took turns with another one)"},
      {"time_per_sample_ms", number, "ms", "time",
       "time for one sequence of the batch: time_median_ms divided by the batch size"},
      {"time_samples_ms", numbers, "ms", "time", "every sample, in order; on a GPU the time between CUDA events"},
      {"wall_median_ms", number, "ms", "time",
       "on a GPU: median by the host's clock, from before the launch of a call until the GPU is idle; launching and running "
       "follow each other where the GPU begins when everything is queued"},
      {"wall_samples_ms", numbers, "ms", "time", "on a GPU: every sample by the host's clock"},
      {"samples_with_launches", integer, "", "time",
       "on a GPU: number of samples whose time includes launching, because a call waits for the GPU itself, or launches more "
       "than "
       "can be queued; for the others the GPU began when everything was queued"},

      {"ratio_pairing", text, "", "ratio",
       "how the baseline was measured beside the case: turns (both processes alive, samples in turn) or processes (one process "
       "after the other, because both do not fit into the memory, or one has several ranks)"},
      {"ratio_failure_kind", text, "", "ratio",
       "for processes that ran without the baseline: the failure_kind of the baseline, or of the case beside it"},
      {"ratio_reason", text, "", "ratio", "why they ran without the baseline, in words"},
      {"ratio_median", number, "", "ratio",
       "time of the case divided by the time of the baseline beside it: median of process_ratios"},
      {"ratio_ci_low", number, "", "ratio", "low end of the interval of ratio_median, of the kind that time_ci_scope says"},
      {"ratio_ci_high", number, "", "ratio", "high end of that interval"},
      {"process_ratios", numbers, "", "ratio",
       "for each process the median ratio of neighbouring samples of which neither was disturbed"},
      {"baseline_median_ms", number, "ms", "ratio", "median time of the baseline beside the case"},
      {"baseline_digest", text, "", "ratio", "results_digest of the baseline"},
      {"baseline_samples_ms", numbers, "ms", "ratio", "samples of the baseline, in the order of the samples that they neighbour"},

      {"disturbed_samples", integer, "", "disturbance",
       "number of samples that are marked as disturbed; they stay in the record"},
      {"disturbed_processes", integer, "", "disturbance",
       "number of processes with so few undisturbed samples that their disturbed samples count, too"},
      {"sample_disturbances", numbers, "", "disturbance",
       "for each sample: by what share the machine was slower beside it than at its best, by the probes, by waiting for a "
       "processor, or by time that the hypervisor took"},
      {"baseline_disturbances", numbers, "", "disturbance", "the same for each of the baseline's samples"},
      {"probe_arithmetic_us", number, "us", "disturbance",
       "median time of the arithmetic probe, a fixed number of multiply-adds"},
      {"probe_memory_us", number, "us", "disturbance",
       "median time of the memory probe, a fixed number of reads that wait for each other"},
      {"probe_best_arithmetic_us", number, "us", "disturbance", "first decile of the times of that probe in the process"},
      {"probe_best_memory_us", number, "us", "disturbance", "first decile of the times of that probe in the process"},
      {"processor_share", number, "", "disturbance", "processor time of the samples, divided by their wall time and the threads"},
      {"system_share", number, "", "disturbance", "part of the processor time of the samples that was spent in the system"},
      {"run_delay_share", number, "", "disturbance",
       "time that the thread which waited longest was runnable and waited for a processor, divided by the wall time of the "
       "samples"},
      {"steal_share", number, "", "disturbance",
       "time that the hypervisor took from all processors during the samples, divided by wall time and processors"},
      {"involuntary_switches", integer, "", "disturbance", "how often a thread lost its processor during the samples"},
      {"threads_bound", boolean, "", "disturbance", "whether each thread stayed on a processor of its own"},
      {"page_faults_per_call", number, "", "disturbance", "page faults of a timed call"},
      {"load", number, "", "disturbance", "load average of the last minute when the samples began"},
      {"cpu_clock_mhz", number, "MHz", "disturbance", "median clock of the processor, where the system reports one"},

      {"input_bytes", integer, "B", "memory",
       "size of q, k, v, the key lengths and, for backward, the gradient of the output; for decode, of one token"},
      {"output_bytes", integer, "B", "memory", "size of the output and, for backward, of the gradients of q, k and v"},
      {"state_bytes", integer, "B", "memory", "size of the decoding state after the last token"},
      {"saved_bytes", integer, "B", "memory", "memory that forward keeps alive for backward besides its inputs"},
      {"peak_allocated_bytes", integer, "B", "memory",
       "peak memory of all tensors alive at once, with the inputs and the decoding state"},
      {"peak_extra_bytes", integer, "B", "memory",
       "the part of peak_allocated_bytes above the inputs; for decode the state and what one step needs above it"},
      {"peak_extra_bytes_per_sample", number, "B", "memory",
       "memory for one sequence of the batch: peak_extra_bytes divided by the batch size"},
      {"largest_allocation_bytes", integer, "B", "memory", "largest single allocation"},
      {"peak_reserved_bytes", integer, "B", "memory", "peak memory that the GPU's caching allocator held, with the inputs"},
      {"peak_rss_bytes", integer, "B", "memory", "largest resident set of the process during the memory pass"},
      {"rss_before_bytes", integer, "B", "memory", "resident set before the memory pass, with the inputs"},

      {"payload_bytes", integer, "B", "ranks",
       "with several ranks: what each handed to collectives in one call, which is that of the formula (docs/distributed.md)"},
      {"rank_medians_ms", numbers, "ms", "ranks",
       "with several ranks: median time of each rank, in order; the samples are those of the slowest rank of each call"},
      {"rank_peak_extra_bytes", numbers, "B", "ranks",
       "with several ranks: how far the resident set of each rank grew beyond that before its calls; input_bytes, "
       "peak_extra_bytes and peak_allocated_bytes are those of the rank that takes most"},

      {"max_abs_error", number, "", "agreement",
       "largest difference from the float64 reference, over the output and the gradients"},
      {"max_rel_error", number, "", "agreement",
       "the same relative to the reference: divided by its largest entry (for a gradient, by at least a tenth of the largest "
       "entry of all gradients)"},
      {"max_row_error", number, "", "agreement",
       "largest relative error of a single row of the output or of a gradient: its largest difference divided by its largest "
       "expected entry, or by a hundredth of that of the median row if that is more"},
      {"excess_error", number, "", "agreement",
       "the same as max_rel_error, but for the inputs offset, scaled and outliers less 16 times the error that the reference has "
       "when its inputs are changed by one rounding error"},
      {"error_tolerance", number, "", "agreement", "largest excess_error that is accepted"},
      {"rows_checked", integer, "", "agreement",
       "number of random rows checked at the timed size, over all heads and batch entries; for decode, of steps"},

      {"nondeterminism", number, "", "agreement",
       "largest difference between two calls with the same inputs, relative to the largest entry; 0 if they are equal"},
      {"results_digest", text, "", "agreement",
       "digest of the results at the timed size. A later process of the case whose results have the digest of compared ones does "
       "not compare them again: it has no errors of its own"},
      {"unverified", boolean, "", "agreement", "true if the method has no reference that its results could be compared with"},

      {"python", text, "", "python", "version of Python and of its torch; this and the next columns are of methods in Python"},
      {"time_order", text, "", "python", "how the method says that the time of a call grows with the length"},
      {"memory_order", text, "", "python", "how the method says that its memory beside the inputs grows with the length"},
      {"setup_s", number, "s", "python", "time that the method took to prepare its calls, such as for compiling"},
      {"call_overhead_us", number, "us", "python",
       "what calling the method through Python adds to a call: median time of calls of a function that does nothing"},

      {"quality_row_error_median", number, "", "quality",
       "median over random rows of the distance of the output from exact attention, divided by the norm of the latter (Euclidean "
       "norms of a row); exact attention is softmax attention with the same causal mask and key lengths, of all keys whatever "
       "the pattern; for LSH attention with the queries as keys"},
      {"quality_row_error_p5", number, "", "quality", "5 % of the rows have a smaller error than this"},
      {"quality_row_error_p95", number, "", "quality", "95 % of the rows have a smaller error than this"},
      {"quality_cosine_median", number, "", "quality",
       "median over the same rows of the cosine of the angle between the output and exact attention; 0 for an output of zeros"},
      {"quality_cosine_p5", number, "", "quality", "5 % of the rows have a smaller cosine than this"},
      {"quality_cosine_p95", number, "", "quality", "95 % of the rows have a smaller cosine than this"},
      {"quality_rows", integer, "", "quality",
       "number of rows that these columns are taken over, for all seeds; rows that see fewer than two keys are left out, because "
       "every method is exact there"},
      {"quality_seed_row_errors", numbers, "", "quality", "median error of the rows of each seed, in the order of the seeds"},
      {"quality_effective_keys", number, "", "quality",
       "median over the same rows of exp(entropy of the weights of exact attention): the number of keys that a row attends to, "
       "if "
       "all had the same weight"},
      {"quality_effective_share", number, "", "quality",
       "median of the same number divided by the number of keys that the row sees; 1 for uniform attention"},
      {"quality_of_mean_row_error_median", number, "", "quality",
       "for comparison: quality_row_error_median of the mean of the values that a row sees, which no method needs q and k for"},
      {"quality_of_mean_cosine_median", number, "", "quality", "for comparison: quality_cosine_median of that mean"},
      {"quality_of_zero_row_error_median", number, "", "quality",
       "for comparison: quality_row_error_median of an output of zeros"},
      {"quality_not_scored", text, "", "quality", "why the record has no quality, for example because the method is learned"},
      {"diagnostics", named_numbers, "", "quality",
       "what the method reports about itself, by names that the method declares; a table has a column for each"},

      {"flops", number, "", "prediction", "number of floating-point operations of a call, by the method's formula"},
      {"min_bytes", number, "B", "prediction", "smallest possible memory traffic of a call"},
      {"predicted_peak_bytes", number, "B", "prediction", "prediction of peak_allocated_bytes"},
      {"predicted_state_bytes", number, "B", "prediction",
       "state_bytes by the method's formula; a case whose state has another size is invalid"},
      {"predicted_setup_bytes", number, "B", "prediction",
       "for decode: size of the state and of all the tokens that it takes in, before any step"},
      {"min_calls", integer, "", "prediction", "minimum number of calls of the method that the case makes"},
      {"min_timed_calls", integer, "", "prediction", "how many of these calls are inside samples"},
      {"predicted_time_ms", number, "ms", "prediction", "predicted time of a call"},
      {"sets_up", boolean, "", "prediction", "of a method in Python: whether it prepares its calls, such as by compiling them"},

      {"published_time_ms", number, "ms", "published", "time published elsewhere for this case"},
      {"published_memory_bytes", number, "B", "published", "memory published elsewhere for this case"},
      {"published_outcome", text, "", "published", "outcome published elsewhere for this case"},
      {"published_source", text, "", "published", "where these values were published, and for what machine"},

      {"revision", text, "", "environment", "git revision of the files that the build was made from"},
      {"dirty", boolean, "", "environment", "whether the working tree differed from that revision"},
      {"changes_digest", text, "", "environment", "if it did, the digest of the differences"},
      {"build", text, "", "environment", "whether the build has CUDA, and its build type"},
      {"compiler", text, "", "environment", "compiler of the build"},
      {"compiler_flags", text, "", "environment", "flags of that compiler"},
      {"torch_version", text, "", "environment", "version of LibTorch"},
      {"cpu_model", text, "", "environment", "model of the processor"},
      {"processors", integer, "", "environment", "number of processors that the driver may use"},
      {"processors_bound", text, "", "environment",
       "what bounds that number: the machine, the affinity of the process, or the quota of a control group"},
      {"memory_bound", text, "", "environment", "what bounds the available memory: the machine, or the limit of a control group"},
      {"instruction_set", text, "", "environment", "instruction set that LibTorch's kernels chose"},
      {"cpu_governor", text, "", "environment", "frequency governor, where the system reports it"},
      {"huge_pages", text, "", "environment", "when the system uses pages of 2 MiB by itself: always, madvise or never"},
      {"variables", text, "", "environment",
       "environment variables that change how PyTorch, OpenMP and oneMKL compute or how memory is allocated, such as "
       "OMP_NUM_THREADS=1"},
      {"float32_matmul_precision", text, "", "environment",
       "LibTorch's setting of this name; highest means no TF32 and no bfloat16 inside"},
      {"gpu", text, "", "gpu", "name of the GPU, for CUDA devices"},
      {"gpu_capability", text, "", "gpu", "compute capability of the GPU"},
      {"gpu_driver", text, "", "gpu", "version of the GPU's driver"},
      {"cuda_version", text, "", "gpu", "CUDA runtime of the build"},
      {"gpu_clock_mhz", number, "MHz", "gpu", "median of the clocks of its multiprocessors, read while it worked"},
      {"gpu_clock_min_mhz", number, "MHz", "gpu", "lowest of these clocks"},
      {"gpu_memory_clock_mhz", number, "MHz", "gpu", "median of the clocks of its memory, read while it worked"},
      {"gpu_temperature_c", number, "C", "gpu", "highest of the temperatures read while it worked, in degrees Celsius"},
      {"gpu_power_w", number, "W", "gpu", "highest of the powers read while it worked"},
      {"gpu_throttle_reasons", text, "", "gpu", "reasons for which clocks were held down at any of these readings, or none"},
  };
  all.insert(all.end(), results.begin(), results.end());
  return all;
}

const std::vector<Column>& test_hooks() {
  static const auto all = [] {
    std::vector<Column> found;
    for (const auto& field : fields())
      if (field.test_hook) found.push_back(column_of(field));
    return found;
  }();
  return all;
}

constexpr size_t kNoColumn = SIZE_MAX;

// A column by its index in columns(), which the test hooks follow.
const Column& column_at(size_t at) {
  const auto count = columns().size();
  return at < count ? columns()[at] : test_hooks()[at - count];
}

// The index of the column with this name, or kNoColumn.
size_t index_of(std::string_view name) {
  static const auto index = [] {
    std::unordered_map<std::string_view, size_t> map;
    for (size_t at = 0; at < columns().size() + test_hooks().size(); ++at) map.emplace(column_at(at).name, at);
    return map;
  }();
  const auto found = index.find(name);
  return found == index.end() ? kNoColumn : found->second;
}

// The axes in the order of fields(), with the indices of their columns.
struct Axis {
  const Field* field;
  size_t column;
};
const std::vector<Axis>& axes() {
  static const auto all = [] {
    std::vector<Axis> found;
    for (const auto& field : fields())
      if (field.role == FieldRole::axis) found.push_back({&field, index_of(field.name)});
    return found;
  }();
  return all;
}

bool has_type(const Json& value, ColumnType type) {
  const auto all_numbers = [&] {
    for (const auto& item : value)
      if (!item.is_number() && !item.is_null()) return false;  // null stands for a number that was not finite
    return true;
  };
  switch (type) {
    case ColumnType::text: return value.is_string();
    case ColumnType::integer: return value.is_number_integer();
    case ColumnType::number: return value.is_number();
    case ColumnType::boolean: return value.is_boolean();
    case ColumnType::numbers: return value.is_array() && all_numbers();
    case ColumnType::named_numbers: return value.is_object() && all_numbers();
  }
  return false;
}

bool is_not_finite(const Json& value) { return value.is_number_float() && !std::isfinite(value.get<double>()); }

[[noreturn]] void refuse(std::string_view column, const Json& value, ColumnType expected) {
  throw std::invalid_argument("column " + std::string(column) + " = " + value.dump() + ", expected " +
                              std::string(type_name(expected)));
}

const Json kNull;

}  // namespace

std::string_view type_name(ColumnType type) {
  constexpr std::string_view names[] = {"text", "integer", "number", "boolean", "numbers", "numbers by name"};
  return names[size_t(type)];
}

const std::vector<Column>& columns() {
  static const auto all = declare();
  return all;
}

const Column* find_column(std::string_view name) {
  const auto at = index_of(name);
  return at == kNoColumn ? nullptr : &column_at(at);
}

Record::Record(const Case& c) {
  set("schema_version", kSchemaVersion);
  const auto values = attnbench::to_json(c);
  for (const auto& [name, value] : values.items()) set(name, value);
  if (c.memory_limit_bytes == 0) set("memory_limit_bytes", nullptr);  // the worker finds it out
}

Record Record::parse(Json json) {
  if (!json.is_object()) throw std::invalid_argument("a record is " + std::string(json.type_name()) + ", expected an object");
  const auto found = json.find("schema_version");
  if (found != json.end() && !found->is_null() && !found->is_number_integer())
    refuse("schema_version", *found, ColumnType::integer);
  const int64_t version = found != json.end() && !found->is_null() ? found->get<int64_t>() : kSchemaVersion;
  if (version < kOldestSchemaVersion || version > kSchemaVersion)
    throw std::invalid_argument("schema_version = " + std::to_string(version) + ", expected " +
                                std::to_string(kOldestSchemaVersion) + " to " + std::to_string(kSchemaVersion) +
                                ", which this build understands");
  Record record;
  // Records are written in the order of the columns, so that most names need not be looked for.
  size_t next = 0;
  for (auto& [name, value] : json.get_ref<Json::object_t&>()) {
    const auto at = next < columns().size() && columns()[next].name == name ? next : index_of(name);
    if (at == kNoColumn) {
      if (value.is_null()) continue;  // a column that earlier builds had, which holds nothing here
      throw std::invalid_argument("a record has no column '" + name + "'");
    }
    record.set_at(at, std::move(value));
    next = at + 1;
  }
  for (const auto& axis : fields())
    if (version < axis.since && !record.has(axis.name))
      record.set(axis.name, axis.before.is_null() ? record.get(axis.follows) : axis.before);
  return record;
}

void Record::set(std::string_view name, Json value) {
  const auto at = index_of(name);
  if (at == kNoColumn) throw std::invalid_argument("a record has no column '" + std::string(name) + "'");
  set_at(at, std::move(value));
}

void Record::set_at(size_t at, Json value) {
  const auto& column = column_at(at);
  values_.resize(columns().size() + test_hooks().size());
  if (value.is_null() || is_not_finite(value)) {
    values_[at] = nullptr;
    return;
  }
  if (!has_type(value, column.type)) refuse(column.name, value, column.type);
  if (column.type == ColumnType::text) value = current_text(column.name, value.get_ref<const std::string&>());
  if (column.type == ColumnType::named_numbers) {
    auto& numbers = value.get_ref<Json::object_t&>();
    for (const auto& [key, item] : numbers)
      if (find_column(key)) throw std::invalid_argument("the diagnostic '" + key + "' has the name of a column");
    auto finite = Json::object();
    for (auto& [key, item] : numbers)
      if (!item.is_null() && !is_not_finite(item)) finite[key] = std::move(item);
    value = std::move(finite);
  }
  const bool is_unset_hook = at >= columns().size() && value == attnbench::get(Case(), *find_field(column.name));
  if (is_unset_hook || (value.is_object() && value.empty())) values_[at] = nullptr;
  else values_[at] = std::move(value);
}

void Record::set_failed(std::string_view failure_kind, std::string reason) {
  set("outcome", outcome::failed);
  set("failure_kind", failure_kind);
  set("reason", std::move(reason));
}

bool Record::is_refused() const {
  const auto why = text("failure_kind");
  return why == kind::usage || why == kind::unknown_method;
}

void Record::set_skipped(std::string_view skip_kind, std::string reason) {
  set("outcome", outcome::skipped);
  set("failure_kind", skip_kind);
  set("reason", std::move(reason));
}

void Record::merge(const Record& other) {
  values_.resize(std::max(values_.size(), other.values_.size()));
  for (size_t at = 0; at < other.values_.size(); ++at)
    if (!other.values_[at].is_null()) values_[at] = other.values_[at];
}

const Json& Record::get(std::string_view name) const {
  if (values_.empty()) return kNull;
  if (const auto at = index_of(name); at != kNoColumn) return values_[at];
  static const auto diagnostics = index_of("diagnostics");
  const auto found = values_[diagnostics].find(name);
  return found == values_[diagnostics].end() ? kNull : *found;
}

double Record::number(std::string_view column) const {
  const auto& value = get(column);
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::string Record::text(std::string_view column) const {
  const auto& value = get(column);
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::vector<double> Record::numbers(std::string_view name) const {
  std::vector<double> numbers;
  const auto& value = get(name);
  if (value.is_array())
    for (const auto& item : value)
      if (item.is_number()) numbers.push_back(item.get<double>());
  return numbers;
}

std::string Record::key_without(const std::vector<std::string>& left_out) const {
  std::string key;
  for (const auto& [field, column] : axes())
    if (std::find(left_out.begin(), left_out.end(), field->name) == left_out.end()) append_axis(key, *field, column);
  return key;
}

std::string Record::series_key() const {
  std::string key;
  for (const auto& [field, column] : axes())
    if (field->kind != AxisKind::length) append_axis(key, *field, column);
  return key;
}

void Record::append_axis(std::string& key, const Field& field, size_t column) const {
  if (column < values_.size() && !values_[column].is_null()) append_to_case_key(key, field, values_[column]);
}

Json Record::to_json() const {
  auto json = Json::object();
  // The names differ, so that none has to be looked for before it is added.
  auto& members = json.get_ref<Json::object_t&>();
  members.reserve(columns().size() + test_hooks().size());
  for (size_t at = 0; at < columns().size() + test_hooks().size(); ++at) {
    const auto& value = values_.empty() ? kNull : values_[at];
    if (at < columns().size() || !value.is_null()) members.emplace_back(column_at(at).name, value);
  }
  return json;
}

std::vector<Column> table_columns(const std::vector<const Record*>& records) {
  std::vector<Column> all;
  for (const auto& column : columns()) {
    if (column.type != ColumnType::named_numbers) {
      all.push_back(column);
      continue;
    }
    for (const auto* record : records)
      for (const auto& [name, value] : record->get(column.name).items())
        if (std::none_of(all.begin(), all.end(), [&, &name = name](const Column& other) { return other.name == name; }))
          all.push_back({name, ColumnType::number, "", column.group, ""});
  }
  for (const auto& column : test_hooks())
    if (std::any_of(records.begin(), records.end(), [&](const auto* record) { return record->has(column.name); }))
      all.push_back(column);
  return all;
}

}  // namespace attnbench
