// Lists the methods whose sequences can be split, and checks the axes of a case.
#include "harness/worker/methods/ranks.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "attn/method_name.h"

namespace attnbench {
namespace {

// Softmax attention cuts the sequence into two pieces for each rank, see python/attnbench/distributed/_softmax.py.
constexpr std::string_view kRing = "sparse-sdpa";
constexpr std::string_view kSplitMethods[] = {"delta",  "gated-delta",   "gla",    "kda", "lightning",
                                              "linear", "linear-elu0.1", "retnet", kRing, "simple-gla"};

// The axes that the measurement of ranks does not support; they must have their default values.
constexpr std::string_view kDefaultAxes[] = {"key_lengths", "pattern",       "packed", "sinks",
                                             "inputs",      "concentration", "cache",  "graph"};

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace

std::string why_not_split(const Case& c) {
  const auto name = attn::method_name(c.method);
  if (std::find(std::begin(kSplitMethods), std::end(kSplitMethods), name) == std::end(kSplitMethods)) {
    std::string known;
    for (const auto method : kSplitMethods) known += (known.empty() ? "" : ", ") + std::string(method);
    return std::string(name) + " cannot be split over ranks; the methods that can are " + known;
  }
  if (name.size() < c.method.size()) return c.method + ": methods with options are not measured with several ranks";
  if (c.device != "cpu") return "ranks are measured on the CPU alone, because their exchange by NCCL has never run on a GPU";
  if (c.decodes()) return c.protocol + " is not measured with several ranks, expected forward or forward_backward";
  if (!c.causal) return "ranks are measured with the causal mask alone";
  if (c.dtype == "float16") return "ranks are not measured in float16";
  if (c.key_len != c.query_len || c.kv_heads != c.heads || c.value_heads != c.heads || c.value_dim != c.head_dim)
    return "ranks are measured with as many keys as queries, as many heads of keys and values as of queries, and value_dim = "
           "head_dim";
  for (const auto axis : kDefaultAxes)
    if (const auto& field = *find_field(axis); get(c, field) != get(Case(), field))
      return "ranks are measured with " + std::string(axis) + " = " + text_of(get(Case(), field)) + " alone";
  const auto pieces = name == kRing ? 2 * c.ranks : c.ranks;
  if (c.query_len % pieces != 0)
    return "query_len = " + std::to_string(c.query_len) + " cannot be cut into " + std::to_string(pieces) + " equal pieces for " +
           std::to_string(c.ranks) + " ranks";
  return "";
}

}  // namespace attnbench
