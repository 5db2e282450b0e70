// Renders records as tables and as text for people.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/method_names.h"
#include "harness/schema/record.h"
#include "harness/text/text_table.h"

namespace attnbench {

// The distance from the median time to the farther end of its interval, divided by the median; NaN without a time.
double relative_reach(const Record& record);
// How noisy the median time is, as noise_target counts it: across processes the value of relative_reach(), and of one process the
// distance to the farther end of the interval of the median of its samples.
double noise_of_time(const Record& record);
// Beyond which distance a time or ratio of this record is called noisy: kUsualReach, or noise_target if that is more.
double noise_limit(const Record& record);
// The value of relative_reach() for the ratio to the baseline; NaN without one.
double relative_reach_of_ratio(const Record& record);

// What warns about a measured record: `implausible` and `suspect` (see these columns), `disturbed` (some of its processes had too
// few undisturbed samples) or `noisy` (see noise_of_time()).
enum class Warning { none, implausible, suspect, disturbed, noisy };
Warning warning_about(const Record& record);

// A JSON value as text: text without quotes, null as empty text, anything else as JSON.
std::string plain_text(const Json& value);
// The value of an axis as text, and for the axis `method` its name.
std::string axis_text(const Record& record, const std::string& axis, const MethodNames& names);

// The axes that a table needs to distinguish the cases of these records: method, query_len, and every axis that varies. Leaves
// out the axes in `left_out`, and an axis that has in every record the value of the axis that it follows (Field::follows).
std::vector<const Column*> distinguishing_axes(const std::vector<const Record*>& records,
                                               const std::vector<std::string>& left_out = {});
// The names of those of the `candidates`, in their order, in which records differ that are equal in the axes `first` and in the
// names before.
std::vector<std::string> axes_that_tell_apart(const std::vector<const Record*>& records, const std::vector<std::string>& first,
                                              const std::vector<std::string>& candidates);
// The names of those of these axes without which two of the records could not be told apart: the method, the length, and others
// as far as they are needed, in the order of `axes`.
std::vector<std::string> identifying_axes(const std::vector<const Record*>& records, const std::vector<const Column*>& axes);
// Adds a column to the table for each of these axes.
void add_axes(TextTable& table, const std::vector<const Column*>& axes);
// Names above the table the main axes, such as device and dtype, that no column shows because all records agree in them.
void add_common_axes(TextTable& table, const std::vector<const Record*>& records, const std::vector<const Column*>& shown);

// The positions of the records in the order in which tables show them: those of a method together, of a method those with equal
// axes besides the lengths and the batch together, and of these by length. Methods and other axes come in the order in which they
// are first seen.
std::vector<size_t> order_of_rows(const std::vector<const Record*>& records);

// A table with a row for each record: the distinguishing axes, then time, memory, error and outcome.
TextTable summary_table(const std::vector<Record>& records);
TextTable summary_table_of(const std::vector<const Record*>& records);

// A table of the named columns, with the values as they are stored. A name may also be that of a diagnostic which one of the
// records has. Throws UsageError for an unknown name.
TextTable column_table(const std::vector<Record>& records, const std::vector<std::string>& names);

// A list of named values in groups, as `measure` and `doctor` print them.
struct SheetLine {
  std::string group, name, value;
};
using Sheet = std::vector<SheetLine>;

// A line for each kind of reason why cases were skipped: how many were, and the reason or, if they differ, the first case as an
// example with its reason.
std::vector<std::string> skipped_in_words(const std::vector<Record>& records);

// What the intervals, the warnings and the published values in a table of these records mean, in a sentence each; nothing about
// what none of them has.
std::vector<std::string> legend_of(const std::vector<const Record*>& records);

// What a reader asks first about a measured case: the time with its interval, the memory with the error, and the implementation,
// in a line each. Further lines have the ratio to a baseline, if there is one, and whatever makes the numbers doubtful. For a
// case that was not measured, the outcome and the reason.
Sheet answer_of(const Record& record);

// The result of one record, for the end of a progress line: "1.23 ms ±0.5 %, 4.56 MiB above the inputs" or "skipped: …".
std::string result_in_words(const Record& record);

// The tone in which a record is shown, which depends on whether it failed, was skipped or has a warning.
Tone tone_of(const Record& record);

// The sheet as text: the name of each group, unless it is empty, and below it each value on a line or, if `max_width` is not 0,
// on lines of at most so many columns.
std::string text_of(const Sheet& sheet, size_t max_width = 0);

// Every value of one record except its lists of samples.
Sheet sheet_of(const Record& record);

}  // namespace attnbench
