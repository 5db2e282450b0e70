// Makes the JSON of the schema from the declared fields and columns.
#include "harness/schema/schema.h"

#include "attn/former_options.h"
#include "harness/schema/training.h"

namespace attnbench {
namespace {

Json json_of(const Column& column) {
  return {{"name", column.name},
          {"type", type_name(column.type)},
          {"unit", column.unit},
          {"group", column.group},
          {"description", column.description}};
}

}  // namespace

// A default that is no valid value, which is empty text or a number below the minimum, stands for one that a user or complete()
// supplies.
Json default_json(const Field& field) {
  const auto value = get(Case(), field);
  const bool is_placeholder =
      value.is_string() ? value.get_ref<const std::string&>().empty() : value.is_number() && value.get<double>() < field.min;
  return is_placeholder ? Json() : value;
}

Json columns_json(const Json& diagnostics) {
  auto all = Json::array();
  for (const auto& column : columns()) all.push_back(json_of(column));
  for (const auto& diagnostic : diagnostics) {
    auto item = Json{{"name", diagnostic.at("name")}, {"type", type_name(ColumnType::number)}};
    item.update({{"unit", diagnostic.at("unit")}, {"group", "diagnostics"}, {"description", diagnostic.at("description")}});
    item["methods"] = diagnostic.at("methods");
    all.push_back(std::move(item));
  }
  return all;
}

Json schema_json(const Json& diagnostics) {
  Json json = {
      {"schema_version", kSchemaVersion}, {"usual_reach", kUsualReach}, {"axes", Json::array()}, {"columns", Json::array()}};
  for (const auto& field : fields()) {
    if (field.role != FieldRole::axis) continue;
    json["axes"].push_back({{"name", field.name},
                            {"type", type_name(find_column(field.name)->type)},
                            {"unit", field.unit},
                            {"description", field.description},
                            {"choices", field.also_number ? Json::array() : Json(field.choices)},
                            {"default", default_json(field)},
                            {"kind", kind_name(field.kind)},
                            {"compared", field.compared},
                            {"follows", field.follows.empty() ? Json() : Json(field.follows)},
                            {"before", field.before}});
  }
  for (const auto& column : columns()) json["columns"].push_back(json_of(column));
  // Test hooks are columns only of records of tests, so columns() does not have them.
  for (const auto& field : fields())
    if (field.test_hook) json["columns"].push_back(json_of(*find_column(field.name)));
  json["training"] = {{"axes", Json::array()}, {"columns", Json::array()}};
  for (const auto& field : training_fields())
    if (field.role == FieldRole::axis) json["training"]["axes"].push_back(field.name);
  for (const auto& column : training_columns()) json["training"]["columns"].push_back(json_of(column));
  json["diagnostics"] = diagnostics;
  json["former_options"] = Json::array();
  for (const auto& [method, former, current] : attn::kFormerOptions)
    json["former_options"].push_back({{"method", method}, {"former", former}, {"current", current}});
  return json;
}

}  // namespace attnbench
