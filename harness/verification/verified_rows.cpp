// Expands methods into the cases that are verified, and derives the verdict on a row from its records.
#include "harness/verification/verified_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace attnbench {
namespace {

struct Shape {
  int64_t batch, heads, query_len, key_len, head_dim, value_dim;
  int64_t kv_heads = heads, value_heads = kv_heads;
};
// The shapes that are verified: lengths that are no multiple of a chunk, a vector or a warp; a single position; unequal head_dim
// and value_dim; cross attention; heads that share keys and values; and a length for kernels that take whole blocks only. The
// counts of heads differ from the batch sizes, so that no formula in which one is confused with another agrees by chance. --quick
// leaves out the first.
constexpr Shape kShapes[] = {{2, 3, 300, 300, 64, 64}, {1, 5, 1, 1, 32, 32},     {2, 3, 129, 129, 24, 40},
                             {2, 5, 65, 190, 32, 16},  {1, 3, 256, 256, 32, 32}, {2, 6, 70, 70, 24, 16, /*kv_heads=*/3}};
// Inputs that make a careless implementation lose digits. They are verified in calls of this many positions.
constexpr const char* kHardInputs[] = {"offset", "scaled", "outliers"};
constexpr int64_t kHardInputsLength = 129;

// Patterns of visible keys, which are verified in calls of as many positions, as are sinks, alone and with a window. Most methods
// have none and skip them.
constexpr const char* kPatterns[] = {"window:20",  "window:16+first:3", "window:9+global:2",
                                     "strided:12", "dilated:5/4",       "block:16/3"};

// Packed sequences, which are verified in a call of as many positions with one batch entry, alone and with a window.
constexpr const char* kPacked = "lengths:1,64,20,44";

struct Contents {
  const char *inputs = "normal", *pattern = "all", *packed = "none";
  bool sinks = false;
};

std::vector<Contents> contents_of(const VerifiedRow& row, const Shape& shape, const std::string& protocol, bool quick) {
  std::vector<Contents> all = {{}};
  const bool is_call = protocol == "forward" || protocol == "forward_backward";
  if (shape.query_len != kHardInputsLength) return all;
  if (row.key_lengths != "0")
    for (const auto* pattern : {"all", "window:20"}) all.push_back({.pattern = pattern, .sinks = true});
  if (!is_call) return all;
  if (!quick && row.key_lengths != "0")
    for (const auto* inputs : kHardInputs) all.push_back({.inputs = inputs});
  if (row.key_lengths == "full") {
    for (const auto* pattern : kPatterns) all.push_back({.pattern = pattern});
    for (const auto* pattern : {"all", "window:20"}) all.push_back({.pattern = pattern, .packed = kPacked});
  }
  return all;
}

std::vector<Case> cases_of(const VerifiedRow& row, const std::string& device, bool quick) {
  std::vector<const char*> protocols = {"forward", "forward_backward"};
  if (row.causal && row.key_lengths == "full") protocols.insert(protocols.end(), {"prefill", "decode"});
  std::vector<Case> cases;
  for (const auto& shape : kShapes) {
    if (quick && &shape == kShapes) continue;
    for (const auto* protocol : protocols)
      for (const auto& contents : contents_of(row, shape, protocol, quick)) {
        Case c;
        c.method = row.method;
        c.dtype = row.dtype;
        c.device = device;
        c.causal = row.causal;
        c.key_lengths = row.key_lengths;
        c.protocol = protocol;
        c.inputs = contents.inputs;
        c.pattern = contents.pattern;
        c.packed = contents.packed;
        c.sinks = contents.sinks;
        c.batch = c.packed == "none" ? shape.batch : 1;
        c.heads = shape.heads;
        c.kv_heads = shape.kv_heads;
        c.value_heads = shape.value_heads;
        c.query_len = shape.query_len;
        c.key_len = shape.key_len;
        c.head_dim = shape.head_dim;
        c.value_dim = shape.value_dim;
        c.complete();
        cases.push_back(c);
      }
  }
  return cases;
}

}  // namespace

double VerifiedRow::max_error(const char* protocol) const {
  double max = -1;
  for (const auto& record : records)
    if (record.text("protocol") == protocol && record.has("excess_error")) max = std::max(max, record.number("excess_error"));
  return max;
}

bool VerifiedRow::failed() const {
  return std::any_of(records.begin(), records.end(), [](const Record& r) { return r.text("outcome") == outcome::failed; });
}

bool VerifiedRow::unsupported() const {
  return !failed() && std::none_of(records.begin(), records.end(), [](const Record& r) { return r.measured(); });
}

bool VerifiedRow::unverified() const {
  return std::any_of(records.begin(), records.end(), [](const Record& r) { return r.get("unverified") == true; });
}

Json VerifiedRow::failed_case() const {
  for (const auto& record : records) {
    if (record.text("outcome") != outcome::failed) continue;
    auto axes = Json::object();
    for (const auto& name : axis_names()) axes[name] = record.get(name);
    return axes;
  }
  return nullptr;
}

std::string VerifiedRow::verdict() const {
  for (const auto& record : records)
    if (record.text("outcome") == outcome::failed)
      return fmt::format("{} at N={}, {}{}{}{}{}: {}", record.text("failure_kind"), record.get("query_len").dump(),
                         record.text("protocol"),
                         record.text("inputs") == "normal" ? "" : fmt::format(", inputs {}", record.text("inputs")),
                         record.text("pattern") == "all" ? "" : fmt::format(", pattern {}", record.text("pattern")),
                         record.text("packed") == "none" ? "" : fmt::format(", packed {}", record.text("packed")),
                         record.get("sinks") == true ? ", sinks" : "", record.text("reason"));
  if (unsupported()) return "unsupported: " + records.front().text("reason");
  return unverified() ? "unverified: the method has no reference; --like names one" : "agrees";
}

std::vector<VerifiedRow> rows_to_verify(const std::vector<std::string>& methods, const std::string& device, bool quick) {
  std::vector<const char*> dtypes = {"float32"};
  if (!quick) dtypes.insert(dtypes.end(), {"float64", "bfloat16"});
  std::vector<VerifiedRow> rows;
  for (const auto& method : methods)
    for (const auto* dtype : dtypes)
      for (const bool causal : {false, true})
        for (const auto* key_lengths : {"full", "uniform", "0"}) {
          rows.push_back({method, dtype, causal, key_lengths});
          rows.back().cases = cases_of(rows.back(), device, quick);
        }
  return rows;
}

}  // namespace attnbench
