// Records as a table for people: what varies among them, then time, memory, error and outcome.
#pragma once

#include <string>
#include <vector>

#include "harness/text/text_table.h"
#include "harness/schema/record.h"

namespace attnbench {

// A value in plain words; nothing for null.
std::string plain_text(const Json& value);

// Columns that tell these cases apart, method and query_len in any case; key_len and value_dim not where they only follow
// query_len and head_dim; never those of `apart`.
std::vector<const Column*> telling_axes(const std::vector<const Record*>& records, const std::vector<std::string>& apart = {});
// A column of the table for each of them.
void add_axes(TextTable& table, const std::vector<const Column*>& axes);

TextTable summary_table(const std::vector<Record>& records);

// The named columns as they are stored. Throws UsageError for an unknown one.
TextTable column_table(const std::vector<Record>& records, const std::vector<std::string>& names);

// One record in words, for the end of a progress line: "1.23 ms, 4.56 MiB" or "skipped: predicted_oom".
std::string result_in_words(const Record& record);

// Everything one record says, a line a column.
std::string record_sheet(const Record& record);

}  // namespace attnbench
