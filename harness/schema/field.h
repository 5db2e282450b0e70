// Fields: the declarations of the members of a struct that is read from files, command lines and JSON, such as Case and Training.
// Each such struct has a table of fields, from which everything else is made. The functions here work on any of these tables.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "harness/schema/json.h"

namespace attnbench {

enum class FieldRole { axis, setting };

// What an axis describes. Predictions, analyses, tables and figures treat all axes of a kind alike, so that none of them lists
// axes by name.
enum class AxisKind {
  length,     // query_len and the axes that a sweep varies with it; the points of one curve differ only in axes of this kind
  size,       // another extent of the tensors
  contents,   // the values that the tensors hold
  execution,  // how a call is made; the predictor of times learns a slowdown for each combination of these
};
std::string_view kind_name(AxisKind kind);

// What is declared of a field besides its name, its role, its member and its description.
struct FieldTraits {
  std::string_view unit = {};
  std::vector<std::string_view> choices = {};  // the values that a text field may have, as matches() says; empty means any
  bool also_number = false;                    // whether a text field may also be a whole number in the range
  double min = 0;                              // of a number: the smallest value
  double max = 1e9;                            // of a number: the largest value

  // For axes of a case.
  AxisKind kind = AxisKind::execution;
  bool compared = false;          // whether `analyse` looks for crossovers between series that differ in this axis
  std::string_view follows = {};  // the axis whose value this one takes when it is not given
  int64_t since = 1;              // the first schema version whose records have this axis
  Json before = nullptr;  // the value that cases of earlier schema versions were measured with; null for that of `follows`

  std::string_view section = {};  // the section of a sweep file or of a settings file that holds the field
  bool test_hook = false;         // for tests only; left out of requests and records unless it was set
};

// A field without the struct that it belongs to.
struct AnyField : FieldTraits {
  std::string_view name;  // in records and files; the option of the command line has dashes instead of underscores
  FieldRole role;
  std::string_view description;
};

// One field of the struct Owner.
template <class Owner>
struct FieldOf : AnyField {
  std::variant<std::string Owner::*, int64_t Owner::*, double Owner::*, bool Owner::*> member;
};

// The two kinds of rows of a table of fields.
template <class Owner, class Value>
FieldOf<Owner> axis(std::string_view name, Value Owner::*member, std::string_view description, FieldTraits traits = {}) {
  return {{std::move(traits), name, FieldRole::axis, description}, member};
}
template <class Owner, class Value>
FieldOf<Owner> setting(std::string_view name, Value Owner::*member, std::string_view description, FieldTraits traits = {}) {
  return {{std::move(traits), name, FieldRole::setting, description}, member};
}

// Whether the choice stands for this value. A choice with a colon stands for every text that begins as it does up to the colon,
// with something after it, such as "file:PATH" and "window:W".
bool matches(std::string_view choice, std::string_view value);
// The text of a field or column with this name as this version writes it: in those that name methods, options have their current
// names (attn/former_options.h).
std::string current_text(std::string_view name, const std::string& text);
// Each returns the value if the field may have it, and throws std::invalid_argument that names the field, the value and what was
// expected if it may not. A text is converted by current_text().
std::string checked_text(const AnyField& field, const Json& value);
bool checked_flag(const AnyField& field, const Json& value);
int64_t checked_integer(const AnyField& field, const Json& value);
double checked_number(const AnyField& field, const Json& value);
// The JSON of a number or a boolean as a user types it; `expected` says in the message what it should have been.
Json typed_value(const AnyField& field, const std::string& text, const char* expected);

template <class Owner>
Json get(const Owner& owner, const FieldOf<Owner>& field) {
  return std::visit([&](auto member) { return Json(owner.*member); }, field.member);
}

// Throws std::invalid_argument that names the field, the value and what was expected.
template <class Owner>
void set(Owner& owner, const FieldOf<Owner>& field, const Json& value) {
  if (const auto* text = std::get_if<std::string Owner::*>(&field.member)) owner.*(*text) = checked_text(field, value);
  else if (const auto* flag = std::get_if<bool Owner::*>(&field.member)) owner.*(*flag) = checked_flag(field, value);
  else if (const auto* integer = std::get_if<int64_t Owner::*>(&field.member)) owner.*(*integer) = checked_integer(field, value);
  else owner.*std::get<double Owner::*>(field.member) = checked_number(field, value);
}

// Like set(), for a value as a user types it: text without quotes, numbers and booleans as in JSON.
template <class Owner>
void set_text(Owner& owner, const FieldOf<Owner>& field, const std::string& text) {
  if (std::holds_alternative<std::string Owner::*>(field.member)) return set(owner, field, Json(text));
  const bool is_flag = std::holds_alternative<bool Owner::*>(field.member);
  set(owner, field, typed_value(field, text, is_flag ? "true or false" : "a number"));
}

// Gives the field the value that it has in a new Owner.
template <class Owner>
void set_to_default(Owner& owner, const FieldOf<Owner>& field) {
  std::visit([&](auto member) { owner.*member = Owner().*member; }, field.member);
}

// Null when there is no field of this name.
template <class Owner>
const FieldOf<Owner>* find_field(const std::vector<FieldOf<Owner>>& fields, std::string_view name) {
  for (const auto& field : fields)
    if (field.name == name) return &field;
  return nullptr;
}

// The sections of files, in the order in which the fields name them.
template <class Owner>
std::vector<std::string> sections_of(const std::vector<FieldOf<Owner>>& fields) {
  std::vector<std::string> sections;
  for (const auto& field : fields)
    if (!field.section.empty() && std::find(sections.begin(), sections.end(), field.section) == sections.end())
      sections.emplace_back(field.section);
  return sections;
}

// The names of the fields in a section, or of all if it is empty.
template <class Owner>
std::vector<std::string> names_in(const std::vector<FieldOf<Owner>>& fields, std::string_view section = "") {
  std::vector<std::string> names;
  for (const auto& field : fields)
    if (section.empty() || field.section == section) names.emplace_back(field.name);
  return names;
}

template <class Owner>
Json fields_to_json(const Owner& owner, const std::vector<FieldOf<Owner>>& fields) {
  Json json;
  for (const auto& field : fields) json[std::string(field.name)] = get(owner, field);
  return json;
}

// Fields that `json` lacks have their defaults, and keys that are no fields are ignored. Throws as set() does.
template <class Owner>
Owner fields_from_json(const Json& json, const std::vector<FieldOf<Owner>>& fields) {
  Owner owner;
  for (const auto& field : fields)
    if (const auto found = json.find(field.name); found != json.end()) set(owner, field, *found);
  return owner;
}

// The axes as one line of text. Two lines are equal exactly when all axes are.
template <class Owner>
std::string axes_text(const Owner& owner, const std::vector<FieldOf<Owner>>& fields) {
  std::string text;
  for (const auto& field : fields)
    if (field.role == FieldRole::axis) text += std::string(field.name) + "=" + get(owner, field).dump() + " ";
  return text;
}

}  // namespace attnbench
