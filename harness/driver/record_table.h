// Records as a table for people: what varies among them, then time, memory, error and outcome.
#pragma once

#include <string>
#include <vector>

#include "harness/driver/text_table.h"
#include "harness/protocol/record.h"

namespace attnbench {

TextTable summary_table(const std::vector<Record>& records);

// The named columns as they are stored. Throws UsageError for an unknown one.
TextTable column_table(const std::vector<Record>& records, const std::vector<std::string>& names);

// One record in words, for the end of a progress line: "1.23 ms, 4.56 MiB" or "skipped: predicted_oom".
std::string result_in_words(const Record& record);

// Everything one record says, a line a column.
std::string record_sheet(const Record& record);

}  // namespace attnbench
