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

const std::vector<Field>& fields() {
  using enum AxisKind;
  static const std::vector<Field> all = {
      axis("method", &Case::method, "attention method with its options, such as linear or linear-chunked:chunk=256",
           {.compared = true}),
      axis("device", &Case::device, "device that runs the method", {.choices = {"cpu", "cuda"}, .compared = true}),
      axis("dtype", &Case::dtype, "dtype of q, k and v", {.choices = {"float32", "float64", "bfloat16", "float16"}}),
      axis(
          "protocol", &Case::protocol,
          "what one call does; prefill takes in query_len tokens, decode takes in one token after query_len others (both causal)",
          {.choices = {"forward", "forward_backward", "prefill", "decode"}}),
      axis("batch", &Case::batch, "batch size B", {.min = 1, .max = kMaxSize, .kind = length}),
      axis("heads", &Case::heads, "number of heads H of the queries", {.min = 1, .max = kMaxSize, .kind = size}),
      axis("kv_heads", &Case::kv_heads,
           "number of heads G of the keys, each shared by a group of heads; by default as many as heads",
           {.min = 1, .max = kMaxSize, .kind = size, .follows = "heads", .since = 7}),
      axis("value_heads", &Case::value_heads, "number of heads W of the values; by default as many as kv_heads",
           {.min = 1, .max = kMaxSize, .kind = size, .follows = "kv_heads", .since = 7}),
      axis("query_len", &Case::query_len, "number of queries N, the sequence length",
           {.min = 1, .max = kMaxLength, .kind = length}),
      axis("key_len", &Case::key_len, "number of keys L; by default as many as queries",
           {.min = 1, .max = kMaxLength, .kind = length, .follows = "query_len"}),
      axis("head_dim", &Case::head_dim, "dimension D of a query and of a key", {.min = 1, .max = kMaxSize, .kind = size}),
      axis("value_dim", &Case::value_dim, "dimension M of a value; by default head_dim",
           {.min = 1, .max = kMaxSize, .kind = size, .follows = "head_dim"}),
      axis("causal", &Case::causal, "whether query i of N sees only the keys 0 to i + L - N of L"),
      axis("key_lengths", &Case::key_lengths,
           "number of valid keys of each batch entry: full, uniform (drawn from 1 to L) or a number",
           {.choices = {"full", "uniform"}, .also_number = true, .max = kMaxLength, .kind = contents}),
      axis("pattern", &Case::pattern,
           "keys that a query sees by its distance from them: all; a window, also with the first k keys or with m global "
           "positions; multiples of a stride, which is the square root of the number of keys in strided:sqrt, or of a dilation; "
           "or blocks (docs/patterns.md)",
           {.choices = {"all", "window:W", "window:W+first:k", "window:W+global:m", "global:m", "strided:l", "dilated:W/d",
                        "block:B/c"},
            .kind = size,
            .compared = true,
            .since = 8,
            .before = "all"}),
      axis("packed", &Case::packed,
           "how each batch entry is divided into sequences that do not see each other: none, a number of sequences with drawn "
           "borders, or their lengths, which add up to query_len",
           {.choices = {"none", "uniform:S", "lengths:L,L"}, .kind = size, .since = 8, .before = "none"}),
      axis("sinks", &Case::sinks,
           "whether each head has a sink: a score, drawn from a standard normal distribution, that only the denominator of its "
           "softmax sees",
           {.kind = size, .since = 9, .before = false}),
      axis("inputs", &Case::inputs,
           "distribution of the inputs: normal; q and k clustered around 16 shared centres; 64 positions repeated over and over; "
           "columns with means (offset); heads of many scales (scaled); a few large columns and rows (outliers); or the tensors "
           "q, k and v of a .safetensors or .npy file, such as those of a layer of a model",
           {.choices = {"normal", "clustered", "repeated", "offset", "scaled", "outliers", "file:PATH"}, .kind = contents}),
      axis("concentration", &Case::concentration,
           "factor that q is multiplied by: the larger it is, the fewer keys share most of the weight of a row",
           {.max = 1000, .kind = contents}),
      axis("decay_positions", &Case::decay_positions,
           "number of positions after which what was read counts 1/e on average, of methods that read a decay g",
           {.min = 0.01, .max = kMaxSize, .kind = contents, .since = 7, .before = 20.0}),
      axis("threads", &Case::threads,
           "number of CPU threads, of each rank where there are several; by default one for every processor, or their share of "
           "these",
           {.min = 1, .max = kMaxThreads}),
      axis("ranks", &Case::ranks,
           "number of processes over which the sequence is split, each with processors of its own (docs/distributed.md)",
           {.min = 1, .max = kMaxThreads, .compared = true, .since = 8, .before = 1}),
      axis("cache", &Case::cache, "state of the CPU caches when a call starts", {.choices = {"warm", "cold"}}),
      axis("allocation", &Case::allocation,
           "where large blocks of CPU memory come from: kept from earlier calls, as GPU allocators do, or fresh from the system, "
           "whose page faults then add to the time",
           {.choices = {"kept", "fresh"}}),
      axis("graph", &Case::graph, "whether a GPU replays the call from a CUDA graph; for decode a graph holds 32 steps",
           {.compared = true}),
      axis("seed", &Case::seed, "seed of the inputs", {.max = kMaxSeed, .kind = contents}),
      setting("memory_limit_bytes", &Case::memory_limit_bytes,
              "memory budget, such as \"11 GiB\"; a case predicted to need more is skipped; by default (0) the available memory",
              {.unit = "B", .max = kMaxBytes, .section = "limits"}),
      setting("deadline_s", &Case::deadline_s, "wall time after which a case is ended",
              {.unit = "s", .min = 0.001, .section = "limits"}),
      setting("warmup_s", &Case::warmup_s, "time spent on calls before the first sample; there is at least one such call",
              {.unit = "s", .section = "timing"}),
      setting("min_samples", &Case::min_samples, "minimum number of samples", {.min = 5, .section = "timing"}),
      setting("noise_target", &Case::noise_target,
              "sampling stops when half the width of the median's 95 % interval, divided by the median, is at most this",
              {.section = "timing"}),
      setting("time_budget_s", &Case::time_budget_s, "sampling also stops when it has taken this long",
              {.unit = "s", .section = "timing"}),
      setting("processes", &Case::processes,
              "number of processes that measure the case one after another; with several, the median and its interval are "
              "computed from the medians of the processes",
              {.min = 1, .max = 1000, .section = "timing"}),
      setting("baseline", &Case::baseline,
              "method that takes turns with each case, at the case's own axes, so that their ratio can be measured; axes that "
              "differ follow, such as \"linear query_len=1024\"; by default none",
              {.section = "timing"}),
      setting("max_disturbance", &Case::max_disturbance,
              "a sample is marked as disturbed if the machine was slower while it was taken than at its best, by more than this "
              "share",
              {.section = "timing"}),
      setting("quality_seeds", &Case::quality_seeds,
              "number of seeds of the inputs, and of the random numbers that a method draws, over which the quality columns are "
              "taken; with 0 they are left out",
              {.max = 1000, .section = "quality"}),
      setting("injected_slowdown_percent", &Case::injected_slowdown_percent,
              "for tests of comparisons: by how many percent every sample is reported longer than it was",
              {.section = "timing", .test_hook = true}),
  };
  return all;
}

const Field* find_field(std::string_view name) { return find_field(fields(), name); }

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
