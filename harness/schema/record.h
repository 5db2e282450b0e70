// One record: what came of one attempt at a case. Its columns are declared once, in `columns()`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/schema/case.h"

namespace attnbench {

// 2: inputs, decoding states, quality. 3: allocation, CUDA graphs and what GPUs tell of themselves.
constexpr int64_t kSchemaVersion = 3;

enum class ColumnType { text, integer, number, boolean, numbers };
std::string_view type_name(ColumnType type);

struct Column {
  std::string name;
  ColumnType type;
  std::string unit;   // also in the name: _ms, _bytes, _s
  std::string group;  // "case", "setting", "outcome", "time", "memory", "agreement", "quality", "prediction", …
  std::string description;
};

// Every column, in the order of files and tables: the case's fields first.
const std::vector<Column>& columns();
const Column* find_column(std::string_view name);

// How an attempt ended.
namespace outcome {
inline constexpr auto measured = "measured";
inline constexpr auto skipped = "skipped";  // not run, for a reason known beforehand
inline constexpr auto failed = "failed";
}  // namespace outcome

// Why a case was skipped or failed, in a word.
namespace kind {
inline constexpr auto unsupported = "unsupported";              // skipped: the method or build cannot do it
inline constexpr auto predicted_oom = "predicted_oom";          // skipped: predicted to need more than the memory budget
inline constexpr auto predicted_timeout = "predicted_timeout";  // skipped: predicted to outlast its deadline
inline constexpr auto oom = "oom";                              // failed: memory ran out
inline constexpr auto invalid = "invalid";                      // failed: the result disagrees with the reference
inline constexpr auto error = "error";                          // failed: the method threw
inline constexpr auto crashed = "crashed";                      // failed: the worker died
inline constexpr auto timeout = "timeout";                      // failed: ended at its deadline
inline constexpr auto protocol = "protocol";                    // failed: the worker's answer could not be read
}  // namespace kind

class Record {
 public:
  Record() = default;
  // A record of this case with nothing but its fields.
  explicit Record(const Case& c);
  // Throws std::invalid_argument naming the column; unknown columns of an object are refused unless it was written by a
  // newer schema. What an older one did not know gets the value that was meant.
  static Record parse(const Json& json);

  // Throws std::invalid_argument for an undeclared column or a value of another type. Numbers that are not finite are
  // kept as null.
  void set(std::string_view column, const Json& value);
  void set_failed(std::string_view failure_kind, std::string reason);
  void set_skipped(std::string_view skip_kind, std::string reason);
  // Takes every column of `other` that has a value.
  void merge(const Record& other);

  // Null when the record has no such value.
  const Json& get(std::string_view column) const;
  bool has(std::string_view column) const { return !get(column).is_null(); }
  double number(std::string_view column) const;     // NaN when there is none
  std::string text(std::string_view column) const;  // empty when there is none
  bool measured() const { return text("outcome") == outcome::measured; }

  // Every declared column in order, null where there is no value. Strict JSON.
  Json to_json() const;
  std::string key() const { return case_key(values_); }

 private:
  Json values_ = Json::object();
};

}  // namespace attnbench
