// Fields: the declarations of the members of a struct that is read from files, command lines and JSON, such as Case and Training.
// Each such struct has a table of fields, from which everything else is made. The functions here work on any of these tables.
//
// A field is a struct with at least the members `name`, `member` (a variant of pointers to members of the owner), `choices`,
// `also_number`, `min` and `max`; Field in case.h describes them.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "harness/schema/json.h"

namespace attnbench {

enum class FieldRole { axis, setting };

// What a value of a field must be, without the struct that it belongs to.
struct ValueRules {
  std::string_view name;
  const std::vector<std::string_view>& choices;
  bool also_number;
  double min, max;
};
// Whether the choice stands for this value. A choice with a colon stands for every text that begins as it does up to the colon,
// with something after it, such as "file:PATH" and "window:W".
bool matches(std::string_view choice, std::string_view value);
// The text of a field or column with this name as this version writes it: in those that name methods, options have their current
// names (attn/former_options.h).
std::string current_text(std::string_view name, const std::string& text);
// Each returns the value if it keeps the rules, and throws std::invalid_argument that names the field, the value and what was
// expected if it does not.
// A text is converted by current_text().
std::string checked_text(const ValueRules& rules, const Json& value);
bool checked_flag(const ValueRules& rules, const Json& value);
int64_t checked_integer(const ValueRules& rules, const Json& value);
double checked_number(const ValueRules& rules, const Json& value);
// The JSON of a number or a boolean as a user types it; `expected` says in the message what it should have been.
Json typed_value(const ValueRules& rules, const std::string& text, const char* expected);

template <class Owner, class FieldOfOwner>
Json get(const Owner& owner, const FieldOfOwner& field) {
  return std::visit([&](auto member) { return Json(owner.*member); }, field.member);
}

// Throws std::invalid_argument that names the field, the value and what was expected.
template <class Owner, class FieldOfOwner>
void set(Owner& owner, const FieldOfOwner& field, const Json& value) {
  const ValueRules rules{field.name, field.choices, field.also_number, field.min, field.max};
  if (const auto* text = std::get_if<std::string Owner::*>(&field.member)) owner.*(*text) = checked_text(rules, value);
  else if (const auto* flag = std::get_if<bool Owner::*>(&field.member)) owner.*(*flag) = checked_flag(rules, value);
  else if (const auto* integer = std::get_if<int64_t Owner::*>(&field.member)) owner.*(*integer) = checked_integer(rules, value);
  else owner.*std::get<double Owner::*>(field.member) = checked_number(rules, value);
}

// Like set(), for a value as a user types it: text without quotes, numbers and booleans as in JSON.
template <class Owner, class FieldOfOwner>
void set_text(Owner& owner, const FieldOfOwner& field, const std::string& text) {
  if (std::holds_alternative<std::string Owner::*>(field.member)) return set(owner, field, Json(text));
  const ValueRules rules{field.name, field.choices, field.also_number, field.min, field.max};
  const bool is_flag = std::holds_alternative<bool Owner::*>(field.member);
  set(owner, field, typed_value(rules, text, is_flag ? "true or false" : "a number"));
}

// Gives the field the value that it has in a new Owner.
template <class Owner, class FieldOfOwner>
void set_to_default(Owner& owner, const FieldOfOwner& field) {
  std::visit([&](auto member) { owner.*member = Owner().*member; }, field.member);
}

// A field of a struct that settings files of experiments describe; the members are those of Field in case.h.
template <class Owner>
struct SettingsField {
  std::string_view name;
  FieldRole role;
  std::variant<std::string Owner::*, int64_t Owner::*, double Owner::*, bool Owner::*> member;
  std::string_view description;
  std::vector<std::string_view> choices = {};
  bool also_number = false;
  double min = 0;
  double max = 1e9;
  std::string_view section = {};  // the section of a settings file that holds the field
};

template <class Owner>
Json fields_to_json(const Owner& owner, const std::vector<SettingsField<Owner>>& fields) {
  Json json;
  for (const auto& field : fields) json[std::string(field.name)] = get(owner, field);
  return json;
}

// Fields that `json` lacks have their defaults, and keys that are no fields are ignored. Throws as set() does.
template <class Owner>
Owner fields_from_json(const Json& json, const std::vector<SettingsField<Owner>>& fields) {
  Owner owner;
  for (const auto& field : fields)
    if (const auto found = json.find(field.name); found != json.end()) set(owner, field, *found);
  return owner;
}

// The axes as one line of text. Two lines are equal exactly when all axes are.
template <class Owner>
std::string axes_text(const Owner& owner, const std::vector<SettingsField<Owner>>& fields) {
  std::string text;
  for (const auto& field : fields)
    if (field.role == FieldRole::axis) text += std::string(field.name) + "=" + get(owner, field).dump() + " ";
  return text;
}

}  // namespace attnbench
