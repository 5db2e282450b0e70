#include "harness/text/csv.h"

#include <fmt/format.h>

#include "harness/text/errors.h"
#include "harness/text/safe_text.h"
#include "harness/text/text_file.h"

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

std::vector<CsvRow> read_csv(const std::string& path) {
  constexpr size_t kMaxBytes = size_t{256} << 20;
  const auto text = read_text_file(path, kMaxBytes);
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
