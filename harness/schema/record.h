// One record: the result of one attempt at a case. Its columns are declared once, in `columns()`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/schema/case.h"

namespace attnbench {

// 2 brought inputs, decoding states and quality; 3 allocation, CUDA graphs and the readings of GPUs; 4 moved what a method
// reports about itself into the column `diagnostics`.
constexpr int64_t kSchemaVersion = 4;

// `named_numbers` is a JSON object whose values are numbers, such as {"lsh_bucket_mean": 12.5}.
enum class ColumnType { text, integer, number, boolean, numbers, named_numbers };
std::string_view type_name(ColumnType type);

struct Column {
  std::string name;
  ColumnType type;
  std::string unit;   // also in the name: _ms, _bytes, _s
  std::string group;  // "case", "setting", "outcome", "time", "memory", "agreement", "quality", "prediction", …
  std::string description;
};

// Every column of an ordinary record, in the order of files and tables: the fields of the case come first.
const std::vector<Column>& columns();
// Finds test hooks too, which `columns()` leaves out.
const Column* find_column(std::string_view name);

// A column of an earlier schema that is called otherwise now.
struct FormerName {
  std::string former;
  std::string current;
  bool is_diagnostic;  // whether `current` is the name of a diagnostic and not of a column
};
const std::vector<FormerName>& former_names();
// Null when no column was called this.
const FormerName* find_former_name(std::string_view name);

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
inline constexpr auto oom = "oom";                              // failed: it ran out of memory
inline constexpr auto invalid = "invalid";                      // failed: the result disagrees with the reference
inline constexpr auto error = "error";                          // failed: the method threw
inline constexpr auto crashed = "crashed";                      // failed: the worker died
inline constexpr auto timeout = "timeout";                      // failed: it was ended at its deadline
inline constexpr auto usage = "usage";                          // failed, in plans alone: the case makes no sense
inline constexpr auto protocol = "protocol";                    // failed: the worker's answer could not be read
}  // namespace kind

class Record {
 public:
  Record() = default;
  // A record that holds the fields of this case and nothing else.
  explicit Record(const Case& c);
  // Reads records of this schema and of earlier ones: gives columns their current names, and axes that came later the value that
  // was measured before they existed. Passes over unknown columns when a newer schema wrote the record. Throws
  // std::invalid_argument naming the column that is otherwise unknown or has a value of another type.
  static Record parse(const Json& json);

  // Null erases the value, and so do a number that is not finite, no named numbers at all, and the default of a test hook. Throws
  // std::invalid_argument for an undeclared column or a value of another type.
  void set(std::string_view column, const Json& value);
  void set_failed(std::string_view failure_kind, std::string reason);
  void set_skipped(std::string_view skip_kind, std::string reason);
  // Takes over every value that `other` has.
  void merge(const Record& other);

  // The value of a column, or else of the diagnostic with this name; null when the record has neither.
  const Json& get(std::string_view name) const;
  bool has(std::string_view name) const { return !get(name).is_null(); }
  double number(std::string_view name) const;     // NaN when there is none
  std::string text(std::string_view name) const;  // empty when there is none
  bool measured() const { return text("outcome") == outcome::measured; }

  // Every column of columns() in order, null where there is no value, and then the test hooks that were set. Strict JSON.
  Json to_json() const;
  std::string key() const { return case_key(values_); }

 private:
  Json values_ = Json::object();
};

// The columns of a table of these records: those of columns() with one column for each diagnostic that a record has in place of
// `diagnostics`, and the test hooks that were set.
std::vector<Column> table_columns(const std::vector<const Record*>& records);

}  // namespace attnbench
