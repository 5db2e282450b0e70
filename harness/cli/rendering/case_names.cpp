// Names a case by the axes that vary in a sweep, in full in words, and as a command that measures it.
#include "harness/cli/rendering/case_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cli/rendering/record_table.h"
#include "harness/text/shell_words.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

// A flag is named only where it is set.
std::string part_of_name(const Record& record, const std::string& axis) {
  const auto& value = record.get(axis);
  if (value.is_boolean()) return value.get<bool>() ? " " + axis : "";
  return fmt::format(" {}={}", axis, plain_text(value));
}

}  // namespace

CaseNames::CaseNames(const std::vector<Record>& all) : methods_(all) {
  std::vector<const Record*> records;
  for (const auto& record : all) records.push_back(&record);
  std::vector<std::string> axes;
  for (const auto& field : fields())
    if (field.role == FieldRole::axis) axes.emplace_back(field.name);
  others_ = axes_that_tell_apart(records, {"method", "protocol", "query_len", "causal"}, axes);
}

std::string CaseNames::of(const Record& record) const {
  auto name = fmt::format("{} {} N={}{}", methods_.of(record), record.text("protocol"), record.get("query_len").dump(),
                          part_of_name(record, "causal"));
  for (const auto& axis : others_) name += part_of_name(record, axis);
  return name;
}

std::string measure_command(const Record& record, const std::string& method) {
  std::vector<std::string> words = {"attnbench", "measure", method};
  const Case defaults;
  for (const auto& field : fields()) {
    if (field.role != FieldRole::axis || field.name == "method" || !record.has(field.name)) continue;
    const auto& value = record.get(field.name);
    const bool follows = !field.follows.empty() && value == record.get(field.follows);
    if (follows || value == get(defaults, field) || value == false) continue;
    auto option = "--" + std::string(field.name);
    std::replace(option.begin(), option.end(), '_', '-');
    words.push_back(value.is_boolean() ? option : option + "=" + plain_text(value));
  }
  return shell_text(words);
}

std::string case_in_words(const Record& record) {
  const auto number = [&](std::string_view axis) { return int64_t(record.number(axis)); };
  auto text = fmt::format("{} {}: N = {}", MethodNames({&record}).of(record), record.text("protocol"), number("query_len"));
  if (number("key_len") != number("query_len")) text += fmt::format(", {}", count_of(number("key_len"), "key"));
  text += fmt::format(", batch {}, {} of {}", number("batch"), count_of(number("heads"), "head"), number("head_dim"));
  if (number("kv_heads") != number("heads")) text += fmt::format(", {} of keys", count_of(number("kv_heads"), "head"));
  if (number("value_heads") != number("kv_heads")) text += fmt::format(", {} of values", count_of(number("value_heads"), "head"));
  if (number("value_dim") != number("head_dim")) text += fmt::format(" with values of {}", number("value_dim"));
  text += fmt::format(", {}, {}, {}", record.text("dtype"), record.get("causal") == true ? "causal" : "not causal",
                      record.text("device") == "cpu" ? count_of(number("threads"), "thread") : record.text("device"));
  const auto in_words = {"method",      "device",    "dtype",   "protocol", "batch",     "heads",  "kv_heads",
                         "value_heads", "query_len", "key_len", "head_dim", "value_dim", "causal", "threads"};
  const Case defaults;
  for (const auto& field : fields()) {
    const bool has_word = std::find(in_words.begin(), in_words.end(), field.name) != in_words.end();
    if (field.role != FieldRole::axis || has_word || record.get(field.name) == get(defaults, field)) continue;
    text += "," + part_of_name(record, std::string(field.name));
  }
  return text;
}

}  // namespace attnbench
