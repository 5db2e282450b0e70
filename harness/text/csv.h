// Comma-separated values (RFC 4180).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attnbench {

// One row with its line end. Cells that hold a comma, a quote or a line end are quoted.
std::string csv_row(const std::vector<std::string>& cells);
// The text for one cell, not yet quoted, without control characters (see safe_text.h). Text that a spreadsheet would take for a
// formula gets an apostrophe in front.
std::string csv_text(const std::string& text);

struct CsvRow {
  size_t line;  // the row's first line in the file, counted from 1
  std::vector<std::string> cells;
};

// The number in a cell as spreadsheets and other programs write it: "2", ".5", "+1e-3", with spaces around it. Nothing if the
// cell holds anything else, or a number that is not finite. Does not depend on the locale.
std::optional<double> csv_number(std::string_view cell);

// The rows of a text without its empty lines and without a byte order mark. Throws UsageError that names `path`, the file that
// the text is from, and the line if a quote is not closed.
std::vector<CsvRow> parse_csv(std::string_view text, const std::string& path);

}  // namespace attnbench
