#include "harness/text/text_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/text/csv.h"
#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

std::string padded(const std::string& text, size_t width, TextTable::Align align) {
  const auto space = width - std::min(width, display_width(text));
  return align == TextTable::Align::left ? fmt::format("{}{:{}}", text, "", space) : fmt::format("{:{}}{}", "", space, text);
}

// The width of each column: that of its widest cell, and `at_least` this.
std::vector<size_t> widths_of(const std::vector<std::vector<std::string>>& rows, size_t columns, size_t at_least) {
  std::vector<size_t> widths(columns, at_least);
  for (const auto& row : rows)
    for (size_t c = 0; c < columns; ++c) widths[c] = std::max(widths[c], display_width(row[c]));
  return widths;
}

// A column of a table that is made to fit into a width.
struct FittedColumn {
  std::string header;
  bool is_text;  // texts may be shortened, numbers may not
  size_t full_width, width;
  bool is_shown = true;
};

size_t total_width(const std::vector<FittedColumn>& columns) {
  size_t total = 0;
  for (const auto& column : columns)
    if (column.is_shown) total += column.width + (total > 0 ? 2 : 0);
  return total;
}

// Shortens the texts of columns to no less than `shortest`, the widest column first, until the table fits.
void shorten(std::vector<FittedColumn>& columns, size_t shortest, size_t max_width) {
  while (total_width(columns) > max_width) {
    FittedColumn* widest = nullptr;
    for (auto& column : columns)
      if (column.is_shown && column.is_text && column.width > shortest && (!widest || column.width > widest->width))
        widest = &column;
    if (!widest) return;
    const auto excess = total_width(columns) - max_width;
    widest->width = widest->width > shortest + excess ? widest->width - excess : shortest;
  }
}

// The steps that TextTable::render() describes.
void fit(std::vector<FittedColumn>& columns, const std::vector<std::string>& left_out_first, size_t max_width) {
  constexpr size_t kReadable = 24, kShortest = 8;
  shorten(columns, kReadable, max_width);
  for (const auto& header : left_out_first)
    for (auto& column : columns)
      if (column.header == header && total_width(columns) > max_width) column.is_shown = false;
  shorten(columns, kShortest, max_width);
  for (size_t c = columns.size(); c > 1 && total_width(columns) > max_width; --c) columns[c - 1].is_shown = false;
}

// Says which columns of a table do not show everything; empty if all do.
std::string note_about(const std::vector<FittedColumn>& columns, size_t max_width) {
  std::string left_out, cut;
  for (const auto& column : columns) {
    auto& list = column.is_shown ? cut : left_out;
    if (!column.is_shown || column.width < column.full_width) list += (list.empty() ? "" : ", ") + column.header;
  }
  std::string note;
  if (!left_out.empty()) note += fmt::format("not shown: {}", left_out);
  if (!cut.empty()) note += fmt::format("{}shortened: {}", note.empty() ? "" : "; ", cut);
  if (note.empty()) return "";
  return wrapped(fmt::format("(the terminal has {} columns; {})", max_width, note), max_width) + "\n";
}

}  // namespace

std::string markdown_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("\\|*_`<>[]").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string coloured(const std::string& text, Tone tone) {
  constexpr const char* codes[] = {"", "32", "33", "31", "2"};
  return tone == Tone::plain ? text : fmt::format("\x1b[{}m{}\x1b[0m", codes[size_t(tone)], text);
}

void TextTable::add_column(std::string header, Align align) { columns_.push_back({std::move(header), align}); }

void TextTable::add_row(std::vector<std::string> cells, Tone tone) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
  tones_.push_back(tone);
}

std::string TextTable::render(TableFormat format, bool colours, size_t max_width) const {
  Rows rows(1);
  for (const auto& column : columns_) rows[0].push_back(column.header);
  rows.insert(rows.end(), rows_.begin(), rows_.end());
  if (format == TableFormat::csv) return render_csv(std::move(rows));
  for (auto& row : rows)
    for (auto& cell : row) cell = safe_text(cell);
  return format == TableFormat::markdown ? render_markdown(std::move(rows)) : render_text(std::move(rows), colours, max_width);
}

std::string TextTable::render_csv(Rows rows) const {
  std::string text;
  for (auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c)
      if (columns_[c].align == Align::left) row[c] = csv_text(row[c]);
    text += csv_row(row);
  }
  return text;
}

std::string TextTable::render_markdown(Rows rows) const {
  for (auto& row : rows)
    for (auto& cell : row) cell = markdown_text(cell);
  const auto widths = widths_of(rows, columns_.size(), 3);
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    text += "|";
    for (size_t c = 0; c < columns_.size(); ++c) text += fmt::format(" {} |", padded(rows[r][c], widths[c], columns_[c].align));
    text += "\n";
    if (r > 0) continue;
    text += "|";
    for (size_t c = 0; c < columns_.size(); ++c)
      text += columns_[c].align == Align::left ? fmt::format(" {:-<{}} |", "", widths[c])
                                               : fmt::format(" {:-<{}}: |", "", widths[c] - 1);
    text += "\n";
  }
  return text;
}

std::string TextTable::render_text(Rows rows, bool colours, size_t max_width) const {
  std::vector<FittedColumn> fitted;
  const auto widths = widths_of(rows, columns_.size(), 0);
  for (size_t c = 0; c < columns_.size(); ++c)
    fitted.push_back({columns_[c].header, columns_[c].align == Align::left, widths[c], widths[c]});
  if (max_width > 0) fit(fitted, left_out_first_, max_width);
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t c = 0; c < fitted.size(); ++c)
      if (fitted[c].is_shown)
        line += (c == 0 ? "" : "  ") + padded(shortened(rows[r][c], fitted[c].width), fitted[c].width, columns_[c].align);
    while (line.ends_with(' ')) line.pop_back();
    if (max_width > 0) line = shortened(line, max_width);
    if (colours) line = r == 0 ? "\x1b[1m" + line + "\x1b[0m" : coloured(line, tones_[r - 1]);
    text += line + "\n";
    if (r > 0) continue;
    const auto total = total_width(fitted);
    for (size_t i = 0; i < (max_width > 0 ? std::min(total, max_width) : total); ++i) text += "─";
    text += "\n";
  }
  return text + note_about(fitted, max_width);
}

}  // namespace attnbench
