// Tests of Record: its columns, the types of their values, strict JSON, and records of earlier and later schemas.
#include "harness/schema/record.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
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
    case ColumnType::named_numbers: return {{"some", 1}, {"other", 2.5}};
  }
  return nullptr;
}

TEST(Columns, HaveDistinctNamesKnownGroupsAndDescriptions) {
  std::set<std::string> names;
  const std::set<std::string> groups = {"python",    "case",    "setting",     "outcome",   "time",        "memory",
                                        "agreement", "quality", "prediction",  "published", "environment", "gpu",
                                        "process",   "ratio",   "disturbance", "ranks"};
  for (const auto& column : columns()) {
    EXPECT_TRUE(names.insert(column.name).second) << column.name;
    EXPECT_EQ(find_column(column.name), &column);
    EXPECT_TRUE(groups.contains(column.group)) << column.name << " is of group " << column.group;
    EXPECT_FALSE(column.description.empty()) << column.name;
  }
  for (const auto& field : fields()) {
    EXPECT_EQ(names.contains(std::string(field.name)), !field.test_hook) << field.name;
    EXPECT_NE(find_column(field.name), nullptr) << field.name;
  }
  EXPECT_EQ(find_column("time_median"), nullptr);
}

TEST(Columns, NamesContainTheUnit) {
  const auto unit_in = [](const std::string& name) -> std::string {
    if (name.ends_with("_ms")) return "ms";
    if (name.ends_with("_us")) return "us";
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

TEST(Record, EveryColumnIsReadBackFromJson) {
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

TEST(Record, ValuesOfAWrongTypeAreRefusedAndTheErrorNamesTheColumn) {
  for (const auto& column : columns()) {
    for (const auto type : {ColumnType::text, ColumnType::integer, ColumnType::number, ColumnType::boolean, ColumnType::numbers,
                            ColumnType::named_numbers}) {
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
  EXPECT_NO_THROW(Record::parse({{"speed", nullptr}})) << "a column that an earlier build had, without a value";
  EXPECT_EQ(message_of<std::invalid_argument>([] { Record::parse(Json::array()); }), "a record is array, expected an object");
}

TEST(Record, ANewerSchemaIsRefused) {
  EXPECT_EQ(message_of<std::invalid_argument>([] {
              Record::parse({{"schema_version", kSchemaVersion + 1}, {"method", "linear"}});
            }),
            fmt::format("schema_version = {}, expected {} to {}, which this build understands", kSchemaVersion + 1,
                        kOldestSchemaVersion, kSchemaVersion));
  EXPECT_THROW(Record::parse({{"schema_version", kOldestSchemaVersion - 1}}), std::invalid_argument);
  EXPECT_THROW(Record::parse({{"schema_version", "4"}}), std::invalid_argument);
}

TEST(Record, AnOlderRecordWithoutLaterColumnsCanBeRead) {
  const auto record = Record::parse({{"method", "linear"}, {"outcome", "measured"}});
  EXPECT_TRUE(record.measured());
  EXPECT_TRUE(std::isnan(record.number("time_median_ms")));
  EXPECT_EQ(record.text("reason"), "");
}

// The answer of a worker has no schema version. No default is filled in, since it would replace the value of the case that the
// answer is merged into.
TEST(Record, AnAnswerWithoutAVersionGetsNoFormerValues) {
  auto c = some_case();
  c.decay_positions = 5;
  Record record(c);
  record.merge(Record::parse({{"outcome", "measured"}, {"schema_version", nullptr}}));
  EXPECT_EQ(record.number("decay_positions"), 5);
}

TEST(Record, AnAxisThatIsNewerThanTheRecordGetsItsFormerValue) {
  auto json = Record(some_case()).to_json();
  for (const auto& field : fields()) {
    if (field.since == 1) continue;
    auto older = json, own = json;
    older.erase(std::string(field.name));
    own.erase(std::string(field.name));
    older["schema_version"] = field.since - 1;
    own["schema_version"] = field.since;
    const auto former = field.follows.empty() ? field.before : json[std::string(field.follows)];
    EXPECT_EQ(Record::parse(older).get(field.name), former) << field.name;
    EXPECT_FALSE(Record::parse(own).has(field.name)) << field.name << " is missing from a record that should have it";
  }
}

TEST(Record, DiagnosticsAreFoundByTheirNames) {
  Record record(some_case());
  EXPECT_FALSE(record.has("lsh_bucket_mean"));
  record.set("diagnostics", {{"lsh_bucket_mean", 12.5}, {"lsh_bucket_skew", 2}});
  EXPECT_EQ(record.number("lsh_bucket_mean"), 12.5);
  EXPECT_TRUE(record.has("lsh_bucket_skew"));
  const auto again = Record::parse(Json::parse(record.to_json().dump()));
  EXPECT_EQ(again.get("diagnostics"), record.get("diagnostics"));
  EXPECT_EQ(record.to_json().size(), columns().size());
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              record.set("diagnostics", {{"flops", 1}});
            }),
            "the diagnostic 'flops' has the name of a column");
  record.set("diagnostics", Json::object());
  EXPECT_FALSE(record.has("diagnostics"));
}

TEST(Record, DiagnosticsThatAreNotFiniteAreLeftOut) {
  Record record;
  record.set("diagnostics", {{"a", kNan}, {"b", 1.0}, {"c", nullptr}});
  EXPECT_EQ(record.get("diagnostics"), Json({{"b", 1.0}}));
  record.set("diagnostics", {{"a", kInfinity}});
  EXPECT_FALSE(record.has("diagnostics"));
}

TEST(Record, FormerOptionsOfMethodsAreReadUnderTheirCurrentNames) {
  const auto former = Record::parse({{"method", "linear:kernel=avx2"}, {"baseline", "linear:kernel=portable query_len=8"}});
  EXPECT_EQ(former.text("method"), "linear:implementation=avx2");
  EXPECT_EQ(former.text("baseline"), "linear:implementation=portable query_len=8");
  EXPECT_EQ(former.key(), Record::parse({{"method", "linear:implementation=avx2"}}).key());
  EXPECT_EQ(Record::parse({{"reason", "linear:kernel=avx2"}}).text("reason"), "linear:kernel=avx2") << "it names no method";
}

TEST(Record, TheKindOfItsFailureSaysWhetherThePlanRefusesTheCase) {
  Record record;
  EXPECT_FALSE(record.is_refused());
  for (const auto* refused : {kind::usage, kind::unknown_method}) {
    record.set_failed(refused, "no");
    EXPECT_TRUE(record.is_refused()) << refused;
  }
  record.set_failed(kind::error, "no");
  EXPECT_FALSE(record.is_refused());
}

TEST(Record, TestHooksAreInTheRecordOnlyWhenTheyAreSet) {
  auto c = some_case();
  auto json = Record(c).to_json();
  EXPECT_FALSE(json.contains("injected_slowdown_percent"));
  json["injected_slowdown_percent"] = 0.0;
  EXPECT_FALSE(Record::parse(json).has("injected_slowdown_percent"));
  c.injected_slowdown_percent = 10;
  const auto slowed = Record::parse(Json::parse(Record(c).to_json().dump()));
  EXPECT_EQ(slowed.number("injected_slowdown_percent"), 10);
  EXPECT_EQ(slowed.to_json().size(), columns().size() + 1);
}

TEST(TableColumns, HaveAColumnForEachDiagnosticAndForEachTestHookThatIsSet) {
  const auto names = [](const std::vector<const Record*>& records) {
    std::vector<std::string> all;
    for (const auto& column : table_columns(records)) all.push_back(column.name);
    return all;
  };
  const Record plain(some_case());
  const auto ordinary = names({&plain});
  EXPECT_EQ(ordinary.size(), columns().size() - 1) << "every column but diagnostics";
  auto first = plain, second = plain;
  first.set("diagnostics", {{"b", 1}, {"a", 2}});
  second.set("diagnostics", {{"c", 1}, {"a", 2}});
  second.set("injected_slowdown_percent", 3);
  auto expected = ordinary;
  const auto after = std::find(expected.begin(), expected.end(), "quality_not_scored");
  ASSERT_NE(after, expected.end());
  const std::vector<std::string> added = {"b", "a", "c"};
  expected.insert(after + 1, added.begin(), added.end());
  expected.emplace_back("injected_slowdown_percent");
  EXPECT_EQ(names({&plain, &first, &second}), expected);
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

// One record that cannot be read makes its whole folder unreadable.
TEST(Record, SamplesThatAreNotFiniteDoNotMakeTheRecordUnreadable) {
  Record record;
  try {
    record.set("time_samples_ms", Json::array({1.0, kNan, kInfinity}));
  } catch (const std::invalid_argument&) {
    return;  // Refusing the value keeps the record readable as well.
  }
  EXPECT_NO_THROW(Record::parse(Json::parse(record.to_json().dump())));
}

TEST(Record, NullErasesAValue) {
  Record record;
  record.set("reason", "something");
  record.set("reason", nullptr);
  EXPECT_FALSE(record.has("reason"));
  EXPECT_FALSE(Record::parse({{"reason", nullptr}}).has("reason"));
}

TEST(Record, SetFailedAndSetSkippedSetOutcomeKindAndReason) {
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

TEST(Record, MergeTakesOverEveryValueThatTheOtherRecordHas) {
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

TEST(Record, KeyIsThatOfItsCase) {
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

TEST(Record, NumberIsNanAndTextIsEmptyForColumnsOfAnotherType) {
  Record record(some_case());
  EXPECT_TRUE(std::isnan(record.number("method")));
  EXPECT_EQ(record.text("batch"), "");
  EXPECT_TRUE(record.get("no such column").is_null());
}

}  // namespace
}  // namespace attnbench
