// Records as tables and text for people.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/record.h"
#include "harness/text/text_table.h"

namespace attnbench {

// A value as text: without quotes, and empty for null.
std::string plain_text(const Json& value);

// The axes that tell these cases apart: those that vary, and always method and query_len. Leaves out the axes in `apart`, and an
// axis that has in every record the value of the axis that it follows.
std::vector<const Column*> telling_axes(const std::vector<const Record*>& records, const std::vector<std::string>& apart = {});
// Adds a column to the table for each of these axes.
void add_axes(TextTable& table, const std::vector<const Column*>& axes);

// The telling axes, then time, memory, error and outcome.
TextTable summary_table(const std::vector<Record>& records);

// The named columns as they are stored. A name may be that of a diagnostic that one of the records has, or a former name. Throws
// UsageError for an unknown one.
TextTable column_table(const std::vector<Record>& records, const std::vector<std::string>& names);

// One record in words, for the end of a progress line: "1.23 ms ±0.5 %, 4.56 MiB above the inputs" or "skipped: …".
std::string result_in_words(const Record& record);

// Failed, skipped and implausible records stand out.
Tone tone_of(const Record& record);

// Named values in groups. As text, each has a line below the name of its group.
struct SheetLine {
  std::string group, name, value;
};
using Sheet = std::vector<SheetLine>;

std::string text_of(const Sheet& sheet);

// Every value of one record but for its lists of samples.
Sheet sheet_of(const Record& record);

}  // namespace attnbench
