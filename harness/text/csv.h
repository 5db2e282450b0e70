// Comma-separated values (RFC 4180).
#pragma once

#include <string>
#include <vector>

namespace attnbench {

// One row with its line end; cells are quoted where necessary.
std::string csv_row(const std::vector<std::string>& cells);
// The text of one cell, not yet quoted. Text that a spreadsheet would take for a formula gets a leading apostrophe.
std::string csv_text(const std::string& text);

struct CsvRow {
  size_t line;  // the row's first line in the file, counted from 1
  std::vector<std::string> cells;
};

// The rows of a file without its empty lines. Throws UsageError when the file cannot be read, and with the line when a quote is
// not closed.
std::vector<CsvRow> read_csv(const std::string& path);

}  // namespace attnbench
