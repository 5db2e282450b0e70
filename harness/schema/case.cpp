#include "harness/schema/case.h"

#include <sched.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <stdexcept>

#include "harness/schema/machine.h"

namespace attnbench {
namespace {

std::string join(const std::vector<std::string_view>& words) {
  std::string joined;
  for (const auto& word : words) joined += (joined.empty() ? "" : ", ") + std::string(word);
  return joined;
}

[[noreturn]] void refuse(const Field& field, const std::string& value, const std::string& expected) {
  throw std::invalid_argument(std::string(field.name) + " = " + value + ", expected " + expected);
}

std::string number_text(double number) {
  const auto text = Json(number).dump();
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

}  // namespace

void Case::complete() {
  if (key_len == 0) key_len = query_len;
  if (value_dim == 0) value_dim = head_dim;
  if (decodes()) causal = true;
  if (threads == 0) threads = available_processors();
  if (memory_limit_bytes == 0 && device == "cpu") memory_limit_bytes = available_memory_bytes();
}

const std::vector<Field>& fields() {
  using enum FieldRole;
  static const std::vector<Field> all = {
      {"method", axis, &Case::method, "", "attention method, with its options: linear or linear:chunk=256"},
      {"device", axis, &Case::device, "", "where it runs", {"cpu", "cuda"}},
      {"dtype", axis, &Case::dtype, "", "type of q, k and v", {"float32", "float64", "bfloat16", "float16"}},
      {"protocol",
       axis,
       &Case::protocol,
       "",
       "what one call does; decode: one token after query_len others, prefill: those others (both causal)",
       {"forward", "forward_backward", "prefill", "decode"}},
      {"batch", axis, &Case::batch, "", "batch size B", {}, 1},
      {"heads", axis, &Case::heads, "", "heads H", {}, 1},
      {"query_len", axis, &Case::query_len, "", "queries N, the sequence length", {}, 1},
      {"key_len", axis, &Case::key_len, "", "keys L; by default as many as queries", {}, 1},
      {"head_dim", axis, &Case::head_dim, "", "size D of a query and a key", {}, 1},
      {"value_dim", axis, &Case::value_dim, "", "size M of a value; by default as head_dim", {}, 1},
      {"causal", axis, &Case::causal, "", "query i sees keys 0…i only"},
      {"key_lengths", axis, &Case::key_lengths, "", "valid keys of each batch entry: full, uniform (on 1…L) or a number"},
      {"inputs",
       axis,
       &Case::inputs,
       "",
       "distribution of q and k: normal, clustered around 16 shared centres, or a block of 64 positions repeated",
       {"normal", "clustered", "repeated"}},
      {"threads", axis, &Case::threads, "", "threads of the CPU; by default every processor", {}, 1},
      {"cache", axis, &Case::cache, "", "state of the caches when a call starts", {"warm", "cold"}},
      {"allocation",
       axis,
       &Case::allocation,
       "",
       "large blocks on the CPU: kept from call to call, as GPU allocators do, or fresh from the system, page faults included",
       {"kept", "fresh"}},
      {"graph", axis, &Case::graph, "",
       "on a GPU: the call is captured in a CUDA graph and replayed; of decode 32 steps at once"},
      {"seed", axis, &Case::seed, "", "seed of the inputs"},
      {"memory_limit_bytes",
       setting,
       &Case::memory_limit_bytes,
       "B",
       "memory budget: predicted to need more, a case is not run; by default (0) what is available",
       {},
       0,
       "limits.memory"},
      {"deadline_s", setting, &Case::deadline_s, "s", "a case that runs longer is ended", {}, 0.001, "limits.seconds"},
      {"warmup_s", setting, &Case::warmup_s, "s", "warm-up before the first sample, one call at least", {}, 0, "timing.warmup"},
      {"min_samples", setting, &Case::min_samples, "", "fewest samples", {}, 5, "timing.min_samples"},
      {"noise_target",
       setting,
       &Case::noise_target,
       "",
       "sampling stops when the 95 % interval of the median is this narrow (half width over median)",
       {},
       0,
       "timing.noise_target"},
      {"time_budget_s", setting, &Case::time_budget_s, "s", "or when sampling has taken this long", {}, 0, "timing.seconds"},
      {"processes",
       setting,
       &Case::processes,
       "",
       "processes that measure the case one after another; with several the median and its interval are those of their medians",
       {},
       1,
       "timing.processes"},
      {"injected_slowdown_percent",
       setting,
       &Case::injected_slowdown_percent,
       "",
       "for tests of comparisons: so much time is wasted after each timed call, in percent of the call's",
       {},
       0,
       "timing.injected_slowdown"},
  };
  return all;
}

const Field* find_field(std::string_view name) {
  for (const auto& field : fields())
    if (field.name == name) return &field;
  return nullptr;
}

Json get(const Case& c, const Field& field) {
  return std::visit([&](auto member) { return Json(c.*member); }, field.member);
}

void set(Case& c, const Field& field, const Json& value) {
  if (const auto* text = std::get_if<std::string Case::*>(&field.member)) {
    if (!value.is_string()) refuse(field, value.dump(), "text");
    const auto& given = value.get_ref<const std::string&>();
    bool known = field.choices.empty();
    for (const auto& choice : field.choices) known = known || choice == given;
    if (!known) refuse(field, "'" + given + "'", "one of " + join(field.choices));
    c.*(*text) = given;
  } else if (const auto* flag = std::get_if<bool Case::*>(&field.member)) {
    if (!value.is_boolean()) refuse(field, value.dump(), "true or false");
    c.*(*flag) = value.get<bool>();
  } else if (const auto* integer = std::get_if<int64_t Case::*>(&field.member)) {
    if (!value.is_number_integer() || value.get<double>() > 9.2e18) refuse(field, value.dump(), "a whole number");
    if (value.get<double>() < field.least) refuse(field, value.dump(), "at least " + number_text(field.least));
    c.*(*integer) = value.get<int64_t>();
  } else {
    const auto member = std::get<double Case::*>(field.member);
    if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(field, value.dump(), "a number");
    if (value.get<double>() < field.least) refuse(field, value.dump(), "at least " + number_text(field.least));
    c.*member = value.get<double>();
  }
}

void set_text(Case& c, const Field& field, const std::string& text) {
  if (std::holds_alternative<std::string Case::*>(field.member)) return set(c, field, text);
  const auto value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded())
    refuse(field, "'" + text + "'", std::holds_alternative<bool Case::*>(field.member) ? "true or false" : "a number");
  set(c, field, value);
}

Json to_json(const Case& c) {
  Json json;
  for (const auto& field : fields()) json[std::string(field.name)] = get(c, field);
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
  return c;
}

std::string case_key(const Json& axes_and_more) {
  std::string key;
  for (const auto& field : fields()) {
    if (field.role != FieldRole::axis) continue;
    const auto found = axes_and_more.find(field.name);
    if (found != axes_and_more.end()) key += std::string(field.name) + "=" + found->dump() + " ";
  }
  return key;
}

}  // namespace attnbench
