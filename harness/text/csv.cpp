// Quotes and parses cells, and disarms text that a spreadsheet would take for a formula.
#include "harness/text/csv.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <system_error>

#include "harness/text/errors.h"
#include "harness/text/safe_text.h"

namespace attnbench {

std::string csv_text(const std::string& text) {
  const auto safe = safe_text(text);
  // A program may skip the space in front that stands for a tab or a line end.
  const bool formula = !text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos;
  return formula ? "'" + safe : safe;
}

std::string csv_row(const std::vector<std::string>& cells) {
  std::string row;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) row += ',';
    if (cells[i].find_first_of(",\"\r\n") == std::string::npos) {
      row += cells[i];
      continue;
    }
    row += '"';
    for (const char c : cells[i]) row += c == '"' ? std::string("\"\"") : std::string(1, c);
    row += '"';
  }
  return row + "\n";
}

std::optional<double> csv_number(std::string_view cell) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!cell.empty() && is_space(cell.front())) cell.remove_prefix(1);
  while (!cell.empty() && is_space(cell.back())) cell.remove_suffix(1);
  if (cell.starts_with('+') && !cell.starts_with("+-")) cell.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
  if (error != std::errc() || end != cell.data() + cell.size() || !std::isfinite(number)) return std::nullopt;
  return number;
}

std::vector<CsvRow> parse_csv(std::string_view text, const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<CsvRow> rows;
  CsvRow row{1, {""}};
  size_t line = 1;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (quoted) {
      if (c != '"') row.cells.back() += c;
      else if (i + 1 < text.size() && text[i + 1] == '"') row.cells.back() += text[++i];
      else quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      row.cells.emplace_back();
    } else if (c == '\n') {
      if (row.cells.size() > 1 || !row.cells[0].empty()) rows.push_back(std::move(row));
      row = {line, {""}};
    } else if (c != '\r') {
      row.cells.back() += c;
    }
  }
  if (quoted) throw UsageError(fmt::format("{}:{}: a quote is not closed", path, row.line));
  if (row.cells.size() > 1 || !row.cells[0].empty()) rows.push_back(std::move(row));
  return rows;
}

}  // namespace attnbench
