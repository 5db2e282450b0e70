// The records of a folder as comma-separated values, for spreadsheets and other programs.
#pragma once

#include <string>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

// The contents of records.csv: the columns of table_columns() without those that hold lists, such as the samples, which only
// records.jsonl has. Text that a spreadsheet would take for a formula is changed as in csv_text().
std::string records_csv(const std::vector<Record>& records);
// The names of the columns that records_csv() leaves out although one of the records has a value there.
std::vector<std::string> left_out_of_csv(const std::vector<Record>& records);

}  // namespace attnbench
