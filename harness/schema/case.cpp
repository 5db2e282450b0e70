// Declares the axes and settings of a case, and completes and checks their values.
#include "harness/schema/case.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "harness/machine/machine.h"

namespace attnbench {
namespace {

constexpr double kMaxSize = 1 << 24, kMaxLength = int64_t{1} << 40, kMaxThreads = 4096;
constexpr double kMaxSeed = int64_t{1} << 62;
constexpr double kMaxBytes = int64_t{1} << 60;

}  // namespace

void Case::complete() {
  for (const auto& field : fields())
    if (!field.follows.empty() && get(*this, field) == 0) set(*this, field, get(*this, *find_field(field.follows)));
  if (decodes()) causal = true;
  if (threads == 0) threads = std::max<int64_t>(1, available_processors() / std::max<int64_t>(1, ranks));
  if (memory_limit_bytes == 0 && device == "cpu") memory_limit_bytes = available_memory_bytes();
}

namespace {

// The packed sequences of a case (attn::PackedSequences) that has fewer positions: the first ones of a list, or as many as there
// are positions. Another text is returned as it is.
std::string shortened(const std::string& packed, int64_t positions) {
  const std::string drawn = "uniform:", listed = "lengths:";
  std::string kept;
  std::istringstream numbers(packed.substr(std::min(packed.size(), drawn.size())));
  if (packed.starts_with(drawn)) {
    if (int64_t count = 0; numbers >> count) return drawn + std::to_string(std::min(count, positions));
  } else if (packed.starts_with(listed)) {
    char comma = 0;
    for (int64_t length = 0; positions > 0 && numbers >> length; numbers >> comma) {
      kept += (kept.empty() ? listed : ",") + std::to_string(std::min(length, positions));
      positions -= std::min(length, positions);
    }
  }
  return kept.empty() ? packed : kept;
}

}  // namespace

Case Case::small(int64_t max_length) const {
  auto c = *this;
  const auto groups = std::gcd(std::gcd(heads, kv_heads), value_heads);
  if (groups > 0) {
    const auto kept = std::min<int64_t>(groups, 3);
    for (auto* count : {&c.heads, &c.kv_heads, &c.value_heads}) *count = *count / groups * kept;
  }
  c.batch = std::min<int64_t>(batch, 2);
  c.query_len = std::min(query_len, max_length);
  c.key_len = std::min(key_len, max_length);
  if (c.query_len < query_len) c.packed = shortened(packed, c.query_len);
  return c;
}

std::string_view kind_name(AxisKind kind) {
  constexpr std::string_view names[] = {"length", "size", "contents", "execution"};
  return names[size_t(kind)];
}

const std::vector<Field>& fields() {
  using enum FieldRole;
  static const std::vector<Field> all = {
      {.name = "method",
       .role = axis,
       .member = &Case::method,
       .description = "attention method with its options, such as linear or linear-chunked:chunk=256",
       .compared = true},
      {.name = "device",
       .role = axis,
       .member = &Case::device,
       .description = "device that runs the method",
       .choices = {"cpu", "cuda"},
       .compared = true},
      {.name = "dtype",
       .role = axis,
       .member = &Case::dtype,
       .description = "dtype of q, k and v",
       .choices = {"float32", "float64", "bfloat16", "float16"}},
      {.name = "protocol",
       .role = axis,
       .member = &Case::protocol,
       .description = "what one call does; prefill takes in query_len tokens, decode takes in one token after query_len others "
                      "(both causal)",
       .choices = {"forward", "forward_backward", "prefill", "decode"}},
      {.name = "batch",
       .role = axis,
       .member = &Case::batch,
       .description = "batch size B",
       .min = 1,
       .max = kMaxSize,
       .kind = AxisKind::length},
      {.name = "heads",
       .role = axis,
       .member = &Case::heads,
       .description = "number of heads H of the queries",
       .min = 1,
       .max = kMaxSize,
       .kind = AxisKind::size},
      {.name = "kv_heads",
       .role = axis,
       .member = &Case::kv_heads,
       .description = "number of heads G of the keys, each shared by a group of heads; by default as many as heads",
       .min = 1,
       .max = kMaxSize,
       .kind = AxisKind::size,
       .follows = "heads",
       .since = 7},
      {.name = "value_heads",
       .role = axis,
       .member = &Case::value_heads,
       .description = "number of heads W of the values; by default as many as kv_heads",
       .min = 1,
       .max = kMaxSize,
       .kind = AxisKind::size,
       .follows = "kv_heads",
       .since = 7},
      {.name = "query_len",
       .role = axis,
       .member = &Case::query_len,
       .description = "number of queries N, the sequence length",
       .min = 1,
       .max = kMaxLength,
       .kind = AxisKind::length},
      {.name = "key_len",
       .role = axis,
       .member = &Case::key_len,
       .description = "number of keys L; by default as many as queries",
       .min = 1,
       .max = kMaxLength,
       .kind = AxisKind::length,
       .follows = "query_len"},
      {.name = "head_dim",
       .role = axis,
       .member = &Case::head_dim,
       .description = "dimension D of a query and of a key",
       .min = 1,
       .max = kMaxSize,
       .kind = AxisKind::size},
      {.name = "value_dim",
       .role = axis,
       .member = &Case::value_dim,
       .description = "dimension M of a value; by default head_dim",
       .min = 1,
       .max = kMaxSize,
       .kind = AxisKind::size,
       .follows = "head_dim"},
      {.name = "causal",
       .role = axis,
       .member = &Case::causal,
       .description = "whether query i of N sees only the keys 0 to i + L - N of L"},
      {.name = "key_lengths",
       .role = axis,
       .member = &Case::key_lengths,
       .description = "number of valid keys of each batch entry: full, uniform (drawn from 1 to L) or a number",
       .choices = {"full", "uniform"},
       .also_number = true,
       .max = kMaxLength,
       .kind = AxisKind::contents},
      {.name = "pattern",
       .role = axis,
       .member = &Case::pattern,
       .description =
           "keys that a query sees by its distance from them: all; a window, also with the first k keys or with m global "
           "positions; multiples of a stride, which is the square root of the number of keys in strided:sqrt, or of a dilation; "
           "or blocks (docs/patterns.md)",
       .choices = {"all", "window:W", "window:W+first:k", "window:W+global:m", "global:m", "strided:l", "dilated:W/d",
                   "block:B/c"},
       .kind = AxisKind::size,
       .compared = true,
       .since = 8,
       .before = "all"},
      {.name = "packed",
       .role = axis,
       .member = &Case::packed,
       .description =
           "how each batch entry is divided into sequences that do not see each other: none, a number of sequences with "
           "drawn borders, or their lengths, which add up to query_len",
       .choices = {"none", "uniform:S", "lengths:L,L"},
       .kind = AxisKind::size,
       .since = 8,
       .before = "none"},
      {.name = "sinks",
       .role = axis,
       .member = &Case::sinks,
       .description =
           "whether each head has a sink: a score, drawn from a standard normal distribution, that only the denominator of "
           "its softmax sees",
       .kind = AxisKind::size,
       .since = 9,
       .before = false},
      {.name = "inputs",
       .role = axis,
       .member = &Case::inputs,
       .description =
           "distribution of the inputs: normal; q and k clustered around 16 shared centres; 64 positions repeated over and over; "
           "columns with means (offset); heads of many scales (scaled); a few large columns and rows (outliers); or the tensors "
           "q, "
           "k and v of a .safetensors or .npy file, such as those of a layer of a model",
       .choices = {"normal", "clustered", "repeated", "offset", "scaled", "outliers", "file:PATH"},
       .kind = AxisKind::contents},
      {.name = "concentration",
       .role = axis,
       .member = &Case::concentration,
       .description = "factor that q is multiplied by: the larger it is, the fewer keys share most of the weight of a row",
       .max = 1000,
       .kind = AxisKind::contents},
      {.name = "decay_positions",
       .role = axis,
       .member = &Case::decay_positions,
       .description = "number of positions after which what was read counts 1/e on average, of methods that read a decay g",
       .min = 0.01,
       .max = kMaxSize,
       .kind = AxisKind::contents,
       .since = 7,
       .before = 20.0},
      {.name = "threads",
       .role = axis,
       .member = &Case::threads,
       .description = "number of CPU threads, of each rank where there are several; by default one for every processor, or their "
                      "share of these",
       .min = 1,
       .max = kMaxThreads},
      {.name = "ranks",
       .role = axis,
       .member = &Case::ranks,
       .description = "number of processes over which the sequence is split, each with processors of its own "
                      "(docs/distributed.md)",
       .min = 1,
       .max = kMaxThreads,
       .compared = true,
       .since = 8,
       .before = 1},
      {.name = "cache",
       .role = axis,
       .member = &Case::cache,
       .description = "state of the CPU caches when a call starts",
       .choices = {"warm", "cold"}},
      {.name = "allocation",
       .role = axis,
       .member = &Case::allocation,
       .description = "where large blocks of CPU memory come from: kept from earlier calls, as GPU allocators do, or fresh from "
                      "the system, whose page faults then add to the time",
       .choices = {"kept", "fresh"}},
      {.name = "graph",
       .role = axis,
       .member = &Case::graph,
       .description = "whether a GPU replays the call from a CUDA graph; for decode a graph holds 32 steps",
       .compared = true},
      {.name = "seed",
       .role = axis,
       .member = &Case::seed,
       .description = "seed of the inputs",
       .max = kMaxSeed,
       .kind = AxisKind::contents},
      {.name = "memory_limit_bytes",
       .role = setting,
       .member = &Case::memory_limit_bytes,
       .description =
           "memory budget, such as \"11 GiB\"; a case predicted to need more is skipped; by default (0) the available memory",
       .unit = "B",
       .max = kMaxBytes,
       .section = "limits"},
      {.name = "deadline_s",
       .role = setting,
       .member = &Case::deadline_s,
       .description = "wall time after which a case is ended",
       .unit = "s",
       .min = 0.001,
       .section = "limits"},
      {.name = "warmup_s",
       .role = setting,
       .member = &Case::warmup_s,
       .description = "time spent on calls before the first sample; there is at least one such call",
       .unit = "s",
       .section = "timing"},
      {.name = "min_samples",
       .role = setting,
       .member = &Case::min_samples,
       .description = "minimum number of samples",
       .min = 5,
       .section = "timing"},
      {.name = "noise_target",
       .role = setting,
       .member = &Case::noise_target,
       .description = "sampling stops when half the width of the median's 95 % interval, divided by the median, is at most this",
       .section = "timing"},
      {.name = "time_budget_s",
       .role = setting,
       .member = &Case::time_budget_s,
       .description = "sampling also stops when it has taken this long",
       .unit = "s",
       .section = "timing"},
      {.name = "processes",
       .role = setting,
       .member = &Case::processes,
       .description = "number of processes that measure the case one after another; with several, the median and its interval "
                      "are computed from the medians of the processes",
       .min = 1,
       .max = 1000,
       .section = "timing"},
      {.name = "baseline",
       .role = setting,
       .member = &Case::baseline,
       .description = "method that takes turns with each case, at the case's own axes, so that their ratio can be measured; axes "
                      "that differ follow, such as \"linear query_len=1024\"; by default none",
       .section = "timing"},
      {.name = "max_disturbance",
       .role = setting,
       .member = &Case::max_disturbance,
       .description =
           "a sample is marked as disturbed if the machine was slower while it was taken than at its best, by more than "
           "this share",
       .section = "timing"},
      {.name = "quality_seeds",
       .role = setting,
       .member = &Case::quality_seeds,
       .description =
           "number of seeds of the inputs, and of the random numbers that a method draws, over which the quality columns "
           "are taken; with 0 they are left out",
       .max = 1000,
       .section = "quality"},
      {.name = "injected_slowdown_percent",
       .role = setting,
       .member = &Case::injected_slowdown_percent,
       .description = "for tests of comparisons: by how many percent every sample is reported longer than it was",
       .section = "timing",
       .test_hook = true},
  };
  return all;
}

const Field* find_field(std::string_view name) {
  for (const auto& field : fields())
    if (field.name == name) return &field;
  return nullptr;
}

const Field* find_axis(std::string_view name) {
  const auto* field = find_field(name);
  return field && field->role == FieldRole::axis ? field : nullptr;
}

std::vector<std::string> axis_names() {
  std::vector<std::string> names;
  for (const auto& field : fields())
    if (field.role == FieldRole::axis) names.emplace_back(field.name);
  return names;
}

bool is_default(const Case& c, const Field& field) {
  auto without_field = c;
  set_to_default(without_field, field);
  without_field.complete();
  return get(without_field, field) == get(c, field);
}

std::optional<Case> baseline_of(const Case& c) {
  std::istringstream words(c.baseline);
  auto baseline = c;
  if (!(words >> baseline.method)) return std::nullopt;
  // An axis that only follows another one follows it here, too.
  for (const auto& field : fields())
    if (!field.follows.empty() && get(c, field) == get(c, *find_field(field.follows))) set_to_default(baseline, field);
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    const auto* field = find_axis(word.substr(0, equals));
    if (equals == std::string::npos || !field || field->name == "method")
      throw std::invalid_argument("baseline = '" + c.baseline + "': '" + word +
                                  "' is not an axis with a value, such as query_len=1024");
    set_text(baseline, *field, word.substr(equals + 1));
  }
  baseline.baseline.clear();
  baseline.injected_slowdown_percent = 0;
  baseline.complete();
  return baseline;
}

Json to_json(const Case& c) {
  Json json;
  for (const auto& field : fields())
    if (!field.test_hook || get(c, field) != get(Case(), field)) json[std::string(field.name)] = get(c, field);
  return json;
}

Case case_from_json(const Json& json) {
  if (!json.is_object()) throw std::invalid_argument("a case is " + std::string(json.type_name()) + ", expected an object");
  Case c;
  for (const auto& [key, value] : json.items()) {
    const auto* field = find_field(key);
    if (!field) throw std::invalid_argument("a case has an unknown field '" + key + "'");
    set(c, *field, value);
  }
  if (c.method.empty()) throw std::invalid_argument("a case has no method");
  // The request of a driver that does not know these axes yet, or that leaves them out, means the axis that they follow.
  for (const auto& field : fields())
    if (field.since > 1 && !field.follows.empty() && get(c, field) == 0) set(c, field, get(c, *find_field(field.follows)));
  return c;
}

std::string case_key(const Json& case_or_record) {
  std::string key;
  for (const auto& field : fields()) {
    if (field.role != FieldRole::axis) continue;
    const auto found = case_or_record.find(field.name);
    if (found != case_or_record.end()) append_to_case_key(key, field, *found);
  }
  return key;
}

void append_to_case_key(std::string& key, const Field& axis, const Json& value) {
  key += axis.name;
  key += '=';
  // dump() takes long for values as short as these.
  if (value.is_boolean()) key += value.get<bool>() ? "true" : "false";
  else if (value.is_number_integer() && !value.is_number_unsigned()) key += std::to_string(value.get<int64_t>());
  else if (value.is_number_unsigned()) key += std::to_string(value.get<uint64_t>());
  else key += value.dump();
  key += ' ';
}

}  // namespace attnbench
