// The columns that records of an experiment have for its settings.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "harness/schema/field.h"
#include "harness/schema/record.h"

namespace attnbench {

// schema_version, and one column for each field: axes in the group `axes`, the others in "setting".
template <class Owner>
std::vector<Column> columns_of(const std::vector<SettingsField<Owner>>& fields, const std::string& axes) {
  const auto type_of = [](const SettingsField<Owner>& field) {
    if (std::holds_alternative<std::string Owner::*>(field.member)) return ColumnType::text;
    if (std::holds_alternative<bool Owner::*>(field.member)) return ColumnType::boolean;
    return std::holds_alternative<int64_t Owner::*>(field.member) ? ColumnType::integer : ColumnType::number;
  };
  std::vector<Column> columns = {{"schema_version", ColumnType::integer, "", axes, "version of this set of columns"}};
  for (const auto& field : fields)
    columns.push_back({std::string(field.name), type_of(field), "", field.role == FieldRole::axis ? axes : "setting",
                       std::string(field.description)});
  return columns;
}

}  // namespace attnbench
