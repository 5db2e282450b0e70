// The series of a sweep: records that differ only in axes of kind `length` (query_len, and key_len and batch, which sweeps vary
// with it), and the values of a series at its lengths.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/schema/record.h"
#include "harness/statistics/statistics.h"

namespace attnbench {

// One quantity of a series at one length and batch size: milliseconds or bytes, divided by the batch size.
struct Point {
  double length = 0, value = 0;
  Interval interval;  // the recorded interval of a time, infinite where there is none; for memory both ends are the value
  int64_t batch = 1;
  const Record* record = nullptr;
};

struct Series {
  std::string method;
  std::map<std::string, Json> setting;  // every axis that is not a length
  std::vector<const Record*> records;   // by ascending query_len

  // The points of the measured, plausible records whose value is above zero, by ascending length. `quantity` is "time" (the
  // median) or "memory" (the peak above the inputs). Of several records of a length and batch size, the last one counts.
  std::vector<Point> points(const std::string& quantity) const;
};

// The values of a column that has one number for each process, such as process_medians_ms. Empty if there are fewer than
// kMinValuesOfInterval, or if any is not a number above zero.
std::vector<double> process_values(const Record& record, std::string_view column);

// The process_values() of several records in the rounds that all of them have (column process_rounds): a list for each record,
// by ascending round. Where a record lacks that column, those of the same place in the lists belong together, if all lists have
// the same length. Empty if fewer than kMinValuesOfInterval rounds remain.
std::vector<std::vector<double>> values_of_same_rounds(const std::vector<const Record*>& records, std::string_view column);

// Appends what an axis of a setting with this value is to a text that is equal exactly for equal settings. A whole number is the
// same with and without a decimal point.
void append_to_setting_key(std::string& key, const Field& axis, const Json& value);

// The series of these records, in the order of their first records, with pointers to the records.
std::vector<Series> series_of(const std::vector<Record>& records);

// The order that the method of the series declares for a quantity, such as "O(N log N)"; for the protocol decode it is that of
// one step. A record that says it itself counts. Empty for unknown methods. `methods` is the array that the worker's command
// `describe` returns.
std::string declared_order(const Series& series, const std::string& quantity, const Json& methods);

// The axes of the series that are not lengths.
Json json_of(const Series& series);

}  // namespace attnbench
