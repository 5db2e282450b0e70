// Record: the result of one attempt at a case. Its columns are declared once, in `columns()`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/schema/case.h"

namespace attnbench {

// Records of version 6 are read as well; version 7 added the axes `kv_heads`, `value_heads` and `decay_positions`, version 8
// the axes `pattern` and `packed`, and version 9 the axes `ranks` and `sinks`.
constexpr int64_t kSchemaVersion = 9, kOldestSchemaVersion = 6;

// `named_numbers` is a JSON object whose values are numbers, such as {"lsh_bucket_mean": 12.5}.
enum class ColumnType { text, integer, number, boolean, numbers, named_numbers };
std::string_view type_name(ColumnType type);
// The type of the column that holds the values of a field.
template <class Owner>
ColumnType type_of(const FieldOf<Owner>& field) {
  // In the order of the alternatives of FieldOf::member.
  constexpr ColumnType types[] = {ColumnType::text, ColumnType::integer, ColumnType::number, ColumnType::boolean};
  return types[field.member.index()];
}

struct Column {
  std::string name;
  ColumnType type;
  std::string unit;   // also in the name: _ms, _bytes, _s
  std::string group;  // "case", "setting", "outcome", "time", "memory", "agreement", "quality", "prediction", …
  std::string description;
};

// Every column except the test hooks, in the order of files and tables.
const std::vector<Column>& columns();
// Null when there is no such column. Also finds the test hooks, which columns() leaves out.
const Column* find_column(std::string_view name);

// How far from a time or ratio its interval reaches, divided by the value, at the most usual: about nine tenths of the intervals
// of the runs in results/repeat reach less far. A value is called noisy if its interval reaches further, and further than
// noise_target.
inline constexpr double kUsualReach = 0.1;

// The ways in which an attempt can end.
namespace outcome {
inline constexpr auto measured = "measured";
inline constexpr auto skipped = "skipped";  // not run, for a reason known beforehand
inline constexpr auto failed = "failed";
}  // namespace outcome

// The reasons for which a case is skipped or fails.
namespace kind {
inline constexpr auto unsupported = "unsupported";              // skipped: the method or the build does not support it
inline constexpr auto predicted_oom = "predicted_oom";          // skipped: predicted to exceed the memory budget
inline constexpr auto predicted_timeout = "predicted_timeout";  // skipped: predicted to run longer than its deadline
inline constexpr auto oom = "oom";                              // failed: the case ran out of memory
inline constexpr auto invalid = "invalid";                      // failed: the result disagrees with the reference
inline constexpr auto error = "error";                          // failed: the method threw
inline constexpr auto crashed = "crashed";                      // failed: the worker ended without an answer
inline constexpr auto timeout = "timeout";                      // failed: the worker was ended at the case's deadline
inline constexpr auto usage = "usage";                          // failed, only in plans: a wrong option or size
inline constexpr auto unknown_method = "unknown_method";        // failed, only in plans: no such method, function or option
inline constexpr auto protocol = "protocol";                    // failed: the worker's answer could not be read
}  // namespace kind

class Record {
 public:
  Record() = default;
  // A record that holds the schema version and the fields of this case, and nothing else.
  explicit Record(const Case& c);
  // Reads a record of kOldestSchemaVersion or a later version. Axes that did not exist yet get the value Field::before, and
  // options of methods get their current names. Throws std::invalid_argument that names another version, an unknown column
  // with a value, or a column whose value has another type.
  static Record parse(Json json);

  // Null erases the value. So do a number that is not finite, an empty object of named numbers, and the default of a test hook.
  // Throws std::invalid_argument for an undeclared column, a value of another type, or a diagnostic that has the name of a
  // column.
  void set(std::string_view column, Json value);
  // Both set the outcome, the column failure_kind (one of namespace kind) and the reason.
  void set_failed(std::string_view failure_kind, std::string reason);
  void set_skipped(std::string_view skip_kind, std::string reason);
  // Sets every column that `other` has to the value in `other`.
  void merge(const Record& other);

  // The value of the column, or otherwise of the diagnostic, with this name; null when the record has neither.
  const Json& get(std::string_view name) const;
  bool has(std::string_view name) const { return !get(name).is_null(); }
  double number(std::string_view name) const;                // NaN when the value is missing or not a number
  std::string text(std::string_view name) const;             // empty when the value is missing or not text
  std::vector<double> numbers(std::string_view name) const;  // those of a list; empty when the value is missing or not a list
  bool measured() const { return text("outcome") == outcome::measured; }
  // Whether this is the plan of a case that makes no sense; the column failure_field says what is wrong with it.
  bool is_refused() const;

  // Every column of columns() in order, null where there is no value, and then the test hooks that were set.
  Json to_json() const;
  // Equal for records of the same case.
  std::string key() const { return key_without({}); }
  // The same without these axes. Equal for records that differ in these axes alone.
  std::string key_without(const std::vector<std::string>& axes) const;
  // Equal for records of one series, which differ only in axes of the kind `length`.
  std::string series_key() const;

 private:
  void set_at(size_t column, Json value);
  void append_axis(std::string& key, const Field& field, size_t column) const;

  // The value of each column, first those of columns() and then the test hooks; null where there is none. A record without any
  // value may have an empty list.
  std::vector<Json> values_;
};

// The columns of a table of these records: those of columns(), where the column `diagnostics` is replaced by a column for each
// diagnostic that any of the records has, and the test hooks that were set.
std::vector<Column> table_columns(const std::vector<const Record*>& records);

}  // namespace attnbench
