// Tests of the schema in JSON, which programs that read records rely on.
#include "harness/schema/schema.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/schema/training.h"

namespace attnbench {
namespace {

const Json kDiagnostics = {
    {{"name", "depth"}, {"unit", ""}, {"description", "how deep it looked"}, {"methods", {"linear", "softmax"}}}};

std::vector<std::string> names_of(const Json& list) {
  std::vector<std::string> names;
  for (const auto& item : list) names.push_back(item.at("name"));
  return names;
}

const Json& item_of(const Json& list, const std::string& name) {
  for (const auto& item : list)
    if (item.at("name") == name) return item;
  throw std::out_of_range(name);
}

TEST(Schema, HasEveryAxisInOrder) {
  const auto schema = schema_json(kDiagnostics);
  EXPECT_EQ(schema["schema_version"], kSchemaVersion);
  EXPECT_EQ(names_of(schema["axes"]), axis_names());
  for (const auto& axis : schema["axes"]) {
    const auto& field = *find_axis(axis["name"].get<std::string>());
    EXPECT_EQ(axis["kind"], kind_name(field.kind));
    EXPECT_EQ(axis["compared"], field.compared);
    EXPECT_EQ(axis["before"], field.before);
    EXPECT_EQ(axis["follows"].is_null(), field.follows.empty());
    EXPECT_FALSE(axis["description"].get<std::string>().empty());
  }
}

TEST(Schema, DefaultIsNullForAxesWithoutAFixedDefault) {
  const auto axes = schema_json(kDiagnostics)["axes"];
  for (const auto* axis : {"method", "key_len", "value_dim", "threads"}) EXPECT_TRUE(item_of(axes, axis)["default"].is_null());
  EXPECT_EQ(item_of(axes, "heads")["default"], 8);
  EXPECT_EQ(item_of(axes, "seed")["default"], 0);
  EXPECT_EQ(item_of(axes, "causal")["default"], false);
  EXPECT_EQ(item_of(axes, "allocation")["default"], "kept");
  EXPECT_EQ(item_of(axes, "key_len")["follows"], "query_len");
  EXPECT_EQ(item_of(axes, "dtype")["choices"].size(), 4u);
}

TEST(Schema, HasEveryColumnThatARecordMayHave) {
  const auto schema = schema_json(kDiagnostics);
  Case c;
  c.method = "linear";
  c.injected_slowdown_percent = 1;
  std::vector<std::string> written;
  const auto json = Record(c).to_json();
  for (const auto& [name, value] : json.items()) written.push_back(name);
  EXPECT_EQ(names_of(schema["columns"]), written);
  EXPECT_EQ(schema["diagnostics"], kDiagnostics);
  const Json option = {{"method", "linear"}, {"former", "kernel"}, {"current", "implementation"}};
  EXPECT_EQ(std::count(schema["former_options"].begin(), schema["former_options"].end(), option), 1);
}

TEST(Schema, DescribesThePointsOfTrainings) {
  const auto training = schema_json(kDiagnostics)["training"];
  EXPECT_EQ(training["axes"], (Json{"task", "method", "seed", "device", "threads"}));
  ASSERT_EQ(training["columns"].size(), training_columns().size());
  const auto& loss = item_of(training["columns"], "validation_loss");
  EXPECT_EQ(loss["type"], "number");
  EXPECT_EQ(loss["group"], "curve");
  EXPECT_EQ(item_of(training["columns"], "training_s")["unit"], "s");
}

TEST(ColumnsJson, ListsOrdinaryColumnsAndThenDiagnostics) {
  const auto all = columns_json(kDiagnostics);
  ASSERT_EQ(all.size(), columns().size() + 1);
  for (size_t i = 0; i < columns().size(); ++i) EXPECT_EQ(all[i]["name"], columns()[i].name);
  EXPECT_EQ(all.back()["name"], "depth");
  EXPECT_EQ(all.back()["type"], "number");
  EXPECT_EQ(all.back()["group"], "diagnostics");
  EXPECT_EQ(all.back()["methods"].size(), 2u);
}

}  // namespace
}  // namespace attnbench
