// Checks and converts the values of fields, and makes the messages about wrong ones.
#include "harness/schema/field.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "attn/former_options.h"

namespace attnbench {
namespace {

std::string join(const std::vector<std::string_view>& words) {
  std::string joined;
  for (const auto& word : words) joined += (joined.empty() ? "" : ", ") + std::string(word);
  return joined;
}

[[noreturn]] void refuse(const AnyField& field, const std::string& value, const std::string& expected) {
  throw std::invalid_argument(std::string(field.name) + " = " + value + ", expected " + expected);
}

std::string number_text(double number) {
  if (number == std::floor(number) && std::abs(number) < 9.2e18) return std::to_string(int64_t(number));
  return Json(number).dump();
}

// The value as the user wrote it; JSON has no text for NaN and infinity.
std::string value_text(const Json& value) {
  if (!value.is_number_float() || std::isfinite(value.get<double>())) return value.dump();
  return std::isnan(value.get<double>()) ? "NaN" : value.get<double>() > 0 ? "infinity" : "-infinity";
}

// `text` is the value as the user wrote it.
void check_range(const AnyField& field, const Json& value, const std::string& text) {
  if (value.get<double>() < field.min) refuse(field, text, "at least " + number_text(field.min));
  if (value.get<double>() > field.max) refuse(field, text, "at most " + number_text(field.max));
}

// The whole number that the text is; one that is too large for 64 bits becomes the largest double. Null for other text.
Json whole_number(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return nullptr;
  if (error == std::errc::result_out_of_range) return (text[0] == '-' ? -1 : 1) * std::numeric_limits<double>::max();
  return number;
}

}  // namespace

std::string_view kind_name(AxisKind kind) {
  constexpr std::string_view names[] = {"length", "size", "contents", "execution"};
  return names[size_t(kind)];
}

std::string current_text(std::string_view name, const std::string& text) {
  return name == "method" || name == "baseline" ? attn::with_current_options(text) : text;
}

bool matches(std::string_view choice, std::string_view value) {
  const auto colon = choice.find(':');
  if (colon == std::string_view::npos) return choice == value;
  const auto begin = choice.substr(0, colon + 1);
  return value.size() > begin.size() && value.starts_with(begin);
}

std::string checked_text(const AnyField& field, const Json& value) {
  if (!value.is_string()) refuse(field, value_text(value), "text");
  const auto& given = value.get_ref<const std::string&>();
  bool known = field.choices.empty();
  for (const auto& choice : field.choices) known = known || matches(choice, given);
  const auto number = field.also_number ? whole_number(given) : Json();
  if (!known && number.is_null())
    refuse(field, "'" + given + "'", "one of " + join(field.choices) + (field.also_number ? ", or a whole number" : ""));
  if (!known) check_range(field, number, given);
  return current_text(field.name, given);
}

bool checked_flag(const AnyField& field, const Json& value) {
  if (!value.is_boolean()) refuse(field, value_text(value), "true or false");
  return value.get<bool>();
}

int64_t checked_integer(const AnyField& field, const Json& value) {
  if (value.is_number()) check_range(field, value, value_text(value));
  if (!value.is_number_integer()) refuse(field, value_text(value), "a whole number");
  return value.get<int64_t>();
}

double checked_number(const AnyField& field, const Json& value) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(field, value_text(value), "a number");
  check_range(field, value, value_text(value));
  return value.get<double>();
}

Json typed_value(const AnyField& field, const std::string& text, const char* expected) {
  try {
    return parse_json(text);
  } catch (const JsonError&) {
    refuse(field, "'" + text + "'", expected);
  }
}

}  // namespace attnbench
