// Record: columns, values and their types, strict JSON, older and newer schemas.
#include "harness/schema/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

#include "tests/support/errors_of.h"

namespace attnbench {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Case some_case() {
  Case c;
  c.method = "linear";
  c.complete();
  return c;
}

Json example_of(ColumnType type) {
  switch (type) {
    case ColumnType::text: return "text";
    case ColumnType::integer: return 42;
    case ColumnType::number: return 0.125;
    case ColumnType::boolean: return true;
    case ColumnType::numbers: return Json::array({1, 2.5});
  }
  return nullptr;
}

TEST(Columns, HaveDistinctNamesAndDescriptions) {
  std::set<std::string> names;
  const std::set<std::string> groups = {"case",    "setting",    "outcome",   "time",        "memory", "agreement",
                                        "quality", "prediction", "published", "environment", "gpu"};
  for (const auto& column : columns()) {
    EXPECT_TRUE(names.insert(column.name).second) << column.name;
    EXPECT_EQ(find_column(column.name), &column);
    EXPECT_TRUE(groups.contains(column.group)) << column.name << " is of group " << column.group;
    EXPECT_FALSE(column.description.empty()) << column.name;
  }
  for (const auto& field : fields()) EXPECT_TRUE(names.contains(std::string(field.name))) << field.name;
  EXPECT_EQ(find_column("time_median"), nullptr);
}

TEST(Columns, UnitsStandInTheirNames) {
  const auto unit_in = [](const std::string& name) -> std::string {
    if (name.ends_with("_ms")) return "ms";
    if (name.ends_with("_s")) return "s";
    if (name.ends_with("_mhz")) return "MHz";
    if (name.ends_with("_c")) return "C";
    if (name.ends_with("_w")) return "W";
    if (name.find("_bytes") != std::string::npos) return "B";
    return "";
  };
  for (const auto& column : columns()) {
    EXPECT_EQ(column.unit, unit_in(column.name)) << column.name;
    if (!column.unit.empty()) {
      EXPECT_TRUE(column.type == ColumnType::integer || column.type == ColumnType::number || column.type == ColumnType::numbers)
          << column.name;
    }
  }
}

TEST(Record, EveryColumnSurvivesJson) {
  Record record;
  for (const auto& column : columns()) record.set(column.name, example_of(column.type));
  record.set("schema_version", kSchemaVersion);
  const auto again = Record::parse(Json::parse(record.to_json().dump()));
  for (const auto& column : columns()) EXPECT_EQ(again.get(column.name), record.get(column.name)) << column.name;
  EXPECT_EQ(again.to_json().dump(), record.to_json().dump());
}

TEST(Record, JsonHasEveryColumnInOrder) {
  const auto json = Record(some_case()).to_json();
  ASSERT_EQ(json.size(), columns().size());
  size_t i = 0;
  for (const auto& [name, value] : json.items()) EXPECT_EQ(name, columns()[i++].name);
  EXPECT_EQ(json["schema_version"], kSchemaVersion);
  EXPECT_EQ(json["method"], "linear");
  EXPECT_TRUE(json["time_median_ms"].is_null());
}

TEST(Record, WrongTypesAreRefusedByColumn) {
  for (const auto& column : columns()) {
    for (const auto type :
         {ColumnType::text, ColumnType::integer, ColumnType::number, ColumnType::boolean, ColumnType::numbers}) {
      const bool fits = type == column.type || (type == ColumnType::integer && column.type == ColumnType::number);
      Record record;
      if (fits) {
        EXPECT_NO_THROW(record.set(column.name, example_of(type))) << column.name;
        continue;
      }
      const auto message = message_of<std::invalid_argument>([&] { record.set(column.name, example_of(type)); });
      EXPECT_EQ(message,
                "column " + column.name + " = " + example_of(type).dump() + ", expected " + std::string(type_name(column.type)));
      EXPECT_FALSE(record.has(column.name));
    }
  }
  Record record;
  EXPECT_THROW(record.set("time_samples_ms", Json::array({1.0, "2"})), std::invalid_argument);
  EXPECT_THROW(record.set("method", Json::object()), std::invalid_argument);
}

TEST(Record, UnknownColumnsAreRefused) {
  Record record;
  EXPECT_EQ(message_of<std::invalid_argument>([&] { record.set("time_medain_ms", 1.0); }),
            "a record has no column 'time_medain_ms'");
  EXPECT_EQ(message_of<std::invalid_argument>([] { Record::parse({{"speed", 3}}); }), "a record has no column 'speed'");
  EXPECT_EQ(message_of<std::invalid_argument>([] {
              Record::parse({{"schema_version", kSchemaVersion}, {"speed", 3}});
            }),
            "a record has no column 'speed'");
  EXPECT_EQ(message_of<std::invalid_argument>([] { Record::parse(Json::array()); }), "a record is array, expected an object");
}

TEST(Record, ColumnsOfANewerSchemaArePassedOver) {
  const auto record = Record::parse({{"speed", 3}, {"schema_version", kSchemaVersion + 1}, {"method", "linear"}});
  EXPECT_EQ(record.text("method"), "linear");
  EXPECT_FALSE(record.has("speed"));
  EXPECT_THROW(Record::parse({{"schema_version", kSchemaVersion + 1}, {"method", 3}}), std::invalid_argument);
}

TEST(Record, AnOlderRecordWithoutLaterColumnsIsRead) {
  const auto record = Record::parse({{"method", "linear"}, {"outcome", "measured"}});
  EXPECT_TRUE(record.measured());
  EXPECT_TRUE(std::isnan(record.number("time_median_ms")));
  EXPECT_EQ(record.text("reason"), "");
}

// Records of version 1 know one distribution of inputs, and are of the same case as one that names it.
TEST(Record, InputsOfTheFirstSchemaAreNormal) {
  const auto c = some_case();
  auto json = Record(c).to_json();
  json["schema_version"] = 1;
  for (const bool null : {true, false}) {
    if (null) json["inputs"] = nullptr;
    else json.erase("inputs");
    const auto record = Record::parse(json);
    EXPECT_EQ(record.text("inputs"), "normal");
    EXPECT_EQ(record.key(), case_key(to_json(c)));
    EXPECT_EQ(record.get("schema_version"), 1);
  }
  // Answers of a worker have no version, and must not change the case they are merged into.
  auto other = c;
  other.inputs = "clustered";
  Record record(other);
  record.merge(Record::parse({{"outcome", "measured"}, {"schema_version", nullptr}}));
  EXPECT_EQ(record.text("inputs"), "clustered");
  json["schema_version"] = kSchemaVersion;
  EXPECT_FALSE(Record::parse(json).has("inputs"));
}

TEST(Record, NumbersThatAreNotFiniteBecomeNull) {
  for (const double value : {kNan, kInfinity, -kInfinity}) {
    Record record;
    record.set("max_rel_error", 0.5);
    record.set("max_rel_error", value);
    EXPECT_FALSE(record.has("max_rel_error"));
    EXPECT_TRUE(Json::parse(record.to_json().dump())["max_rel_error"].is_null());
  }
}

// What is written must be readable again, or one such sample makes the whole folder unreadable.
TEST(Record, SamplesThatAreNotFiniteCanBeReadAgain) {
  Record record;
  try {
    record.set("time_samples_ms", Json::array({1.0, kNan, kInfinity}));
  } catch (const std::invalid_argument&) {
    return;  // refused at once is as good
  }
  EXPECT_NO_THROW(Record::parse(Json::parse(record.to_json().dump())));
}

TEST(Record, NullErases) {
  Record record;
  record.set("reason", "something");
  record.set("reason", nullptr);
  EXPECT_FALSE(record.has("reason"));
  EXPECT_FALSE(Record::parse({{"reason", nullptr}}).has("reason"));
}

TEST(Record, FailureAndSkip) {
  Record record;
  record.set_failed(kind::oom, "too large");
  EXPECT_EQ(record.text("outcome"), "failed");
  EXPECT_EQ(record.text("failure_kind"), "oom");
  EXPECT_EQ(record.text("reason"), "too large");
  EXPECT_FALSE(record.measured());
  record.set_skipped(kind::unsupported, "cannot");
  EXPECT_EQ(record.text("outcome"), "skipped");
  EXPECT_EQ(record.text("failure_kind"), "unsupported");
  record.set("outcome", outcome::measured);
  EXPECT_TRUE(record.measured());
}

TEST(Record, MergeTakesWhatTheOtherHas) {
  Record record(some_case()), other;
  record.set("samples", 5);
  record.set("stop_reason", "time_budget");
  other.set("samples", 6);
  other.set("rows_checked", 64);
  record.merge(other);
  EXPECT_EQ(record.get("samples"), 6);
  EXPECT_EQ(record.get("rows_checked"), 64);
  EXPECT_EQ(record.text("stop_reason"), "time_budget");
  EXPECT_EQ(record.text("method"), "linear");
}

TEST(Record, KeyIsTheCases) {
  const auto c = some_case();
  Record record(c);
  EXPECT_EQ(record.key(), case_key(to_json(c)));
  record.set_failed(kind::crashed, "signal 11");
  record.set("deadline_s", 1.5);
  EXPECT_EQ(record.key(), case_key(to_json(c)));
  EXPECT_EQ(Record::parse(Json::parse(record.to_json().dump())).key(), case_key(to_json(c)));
  record.set("batch", 3);
  EXPECT_NE(record.key(), case_key(to_json(c)));
}

TEST(Record, NumberAndTextOfAnotherTypeAreNothing) {
  Record record(some_case());
  EXPECT_TRUE(std::isnan(record.number("method")));
  EXPECT_EQ(record.text("batch"), "");
  EXPECT_TRUE(record.get("no such column").is_null());
}

}  // namespace
}  // namespace attnbench
