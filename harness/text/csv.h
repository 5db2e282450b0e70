// Comma-separated values (RFC 4180).
#pragma once

#include <string>
#include <vector>

namespace attnbench {

// One row with its line end. Text cells that a spreadsheet would take for a formula get a leading apostrophe.
std::string csv_row(const std::vector<std::string>& cells);
std::string csv_text(const std::string& text);  // the neutralised text of one cell, not yet quoted

struct CsvRow {
  size_t line;  // of the file, from 1
  std::vector<std::string> cells;
};

// Throws UsageError with file and line when a quote is left open or the file cannot be read.
std::vector<CsvRow> read_csv(const std::string& path);

}  // namespace attnbench
