// Fits columns into a width by wrapping and leaving out, and renders the rows.
#include "harness/text/text_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/text/csv.h"
#include "harness/text/safe_text.h"
#include "harness/text/units.h"
#include "harness/text/utf8.h"

namespace attnbench {
namespace {

std::string padded(const std::string& text, size_t width, bool is_right) {
  const auto space = width - std::min(width, display_width(text));
  return is_right ? fmt::format("{:{}}{}", "", space, text) : fmt::format("{}{:{}}", text, "", space);
}

// The width of each column: that of its widest cell, and `at_least` this.
std::vector<size_t> widths_of(const std::vector<std::vector<std::string>>& rows, size_t columns, size_t at_least) {
  std::vector<size_t> widths(columns, at_least);
  for (const auto& row : rows)
    for (size_t c = 0; c < columns; ++c) widths[c] = std::max(widths[c], display_width(row[c]));
  return widths;
}

// The pieces of a text between which it may be broken, each of which ends in one of these characters.
std::vector<std::string> pieces_of(const std::string& text, std::string_view ends = " /,;:=|_-") {
  std::vector<std::string> pieces(1);
  for (size_t i = 0; i < text.size(); ++i) {
    pieces.back() += text[i];
    if (ends.find(text[i]) != std::string_view::npos && i + 1 < text.size()) pieces.emplace_back();
  }
  return pieces;
}

std::string without_space_at_end(std::string text) {
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

// The text in lines of at most `width` columns, which is at least 1.
std::vector<std::string> lines_of(const std::string& text, size_t width) {
  if (display_width(text) <= width) return {text};
  std::vector<std::string> lines(1);
  for (const auto& piece : pieces_of(text)) {
    const auto used = display_width(lines.back());
    if (used > 0 && used + display_width(without_space_at_end(piece)) > width) lines.emplace_back();
    if (display_width(without_space_at_end(piece)) <= width) {
      lines.back() += piece;
      continue;
    }
    for (size_t i = 0; i < piece.size();) {  // a word that is wider than a line
      const auto [value, bytes] = code_point_at(piece, i);
      if (!lines.back().empty() && display_width(lines.back()) + columns_of(value) > width) lines.emplace_back();
      lines.back() += piece.substr(i, bytes);
      i += bytes;
    }
  }
  for (auto& line : lines) line = without_space_at_end(line);
  if (lines.size() > 1 && lines.back().empty()) lines.pop_back();
  return lines;
}

// A column of a table that is made to fit into a width.
struct FittedColumn {
  std::string header;
  bool is_text;               // texts may be wrapped, numbers may not
  bool is_kept;               // never left out
  size_t cells, header_full;  // the widths of the widest cell and of the header
  size_t width = 0;
  bool is_shown = true;

  size_t full_width() const { return std::max(cells, header_full); }
  // The width of the header when it is wrapped. It is broken within words, such as query_len, only if there is no other way.
  size_t header_width(bool within_words) const {
    size_t widest = 1;
    for (const auto& piece : pieces_of(header, within_words ? " /_" : " /"))
      widest = std::max(widest, display_width(without_space_at_end(piece)));
    return widest;
  }
};

size_t total_width(const std::vector<FittedColumn>& columns) {
  size_t total = 0;
  for (const auto& column : columns)
    if (column.is_shown) total += column.width + (total > 0 ? 2 : 0);
  return total;
}

constexpr size_t kReadable = 24, kShort = 12, kShortest = 8;

// Wraps headers as narrowly as needed, and then texts to no less than `shortest`, those of the widest column first. Returns
// whether the table fits.
bool wrap(std::vector<FittedColumn>& columns, size_t shortest, size_t max_width) {
  for (auto& column : columns) column.width = column.full_width();
  for (const bool headers : {true, false})
    while (total_width(columns) > max_width) {
      FittedColumn* widest = nullptr;
      for (auto& column : columns) {
        const auto cells = headers || !column.is_text ? column.cells : std::min(column.cells, shortest);
        const bool can_shrink = column.is_shown && column.width > std::max(cells, column.header_width(shortest == kShortest));
        if (can_shrink && (!widest || column.width > widest->width)) widest = &column;
      }
      if (!widest) break;
      --widest->width;
    }
  return total_width(columns) <= max_width;
}

// The steps 1 to 5 that TextTable::render() describes. Returns whether the table fits.
bool fit(std::vector<FittedColumn>& columns, const std::vector<std::string>& left_out_first, size_t max_width) {
  if (wrap(columns, kReadable, max_width)) return true;
  for (const auto& header : left_out_first)
    for (auto& column : columns) {
      if (column.header != header || column.is_kept) continue;
      column.is_shown = false;
      if (wrap(columns, kReadable, max_width)) return true;
    }
  if (wrap(columns, kShort, max_width)) return true;
  for (auto column = columns.rbegin(); column != columns.rend(); ++column) {
    if (!column->is_shown || column->is_kept) continue;
    column->is_shown = false;
    if (wrap(columns, kShort, max_width)) return true;
  }
  return wrap(columns, kShortest, max_width);
}

// Says which columns of a table are not shown; empty if all are.
std::string note_about(const std::vector<FittedColumn>& columns, size_t max_width) {
  std::string left_out;
  for (const auto& column : columns)
    if (!column.is_shown) left_out += (left_out.empty() ? "" : ", ") + column.header;
  if (left_out.empty()) return "";
  return wrapped(fmt::format("(the terminal has {} columns; not shown: {})", max_width, left_out), max_width) + "\n";
}

bool contains(const std::vector<std::string>& headers, const std::string& header) {
  return std::find(headers.begin(), headers.end(), header) != headers.end();
}

bool is_blank(const std::string& cell) { return cell.empty() || cell == "–"; }

// Each row as a list with a line for each column that is shown. `places` are those of the columns in the rows.
std::string list_of(const std::vector<std::vector<std::string>>& rows, const std::vector<Tone>& tones,
                    const std::vector<FittedColumn>& fitted, const std::vector<size_t>& places, bool colours, size_t max_width) {
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (r > 0) text += "\n";
    for (size_t i = 0; i < fitted.size(); ++i) {
      const auto& cell = rows[r][places[i]];
      if (!fitted[i].is_shown || is_blank(cell)) continue;
      for (const auto& line : lines_of(fitted[i].header + ": " + cell, max_width))
        text += (colours ? coloured(line, tones[r]) : line) + "\n";
    }
  }
  return text + note_about(fitted, max_width);
}

std::string bold(const std::string& line) { return "\x1b[1m" + line + "\x1b[0m"; }

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

void TextTable::add_row(std::vector<std::string> cells, Tone tone) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
  tones_.push_back(tone);
}

TextTable::Rows TextTable::safe_rows() const {
  auto rows = rows_;
  for (auto& row : rows)
    for (auto& cell : row) cell = safe_text(cell);
  return rows;
}

bool TextTable::is_answer(size_t column) const {
  if (choices_.answers.empty()) return column == 0;
  return contains(choices_.answers, columns_[column].header);
}

bool TextTable::is_kept(size_t column) const { return is_answer(column) || contains(choices_.kept, columns_[column].header); }

bool TextTable::is_in_body(size_t column) const {
  if (rows_.size() < 2) return true;
  if (std::all_of(rows_.begin(), rows_.end(), [&](const auto& row) { return is_blank(row[column]); })) return false;
  if (is_answer(column)) return true;
  return std::any_of(rows_.begin(), rows_.end(), [&](const auto& row) { return row[column] != rows_.front()[column]; });
}

std::string TextTable::render(TableFormat format, bool colours, size_t max_width) const {
  if (format == TableFormat::text) return heading(max_width) + body(colours, max_width);
  Rows rows = format == TableFormat::csv ? rows_ : safe_rows();
  rows.emplace(rows.begin());
  for (const auto& column : columns_) rows[0].push_back(format == TableFormat::csv ? column.header : safe_text(column.header));
  return format == TableFormat::csv ? render_csv(std::move(rows)) : render_markdown(std::move(rows));
}

std::string TextTable::render_csv(Rows rows) const {
  std::string text;
  for (auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c)
      if (!columns_[c].is_right) row[c] = csv_text(row[c]);
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
    for (size_t c = 0; c < columns_.size(); ++c)
      text += fmt::format(" {} |", padded(rows[r][c], widths[c], columns_[c].is_right));
    text += "\n";
    if (r > 0) continue;
    text += "|";
    for (size_t c = 0; c < columns_.size(); ++c)
      text += columns_[c].is_right ? fmt::format(" {:-<{}}: |", "", widths[c] - 1) : fmt::format(" {:-<{}} |", "", widths[c]);
    text += "\n";
  }
  return text;
}

std::string TextTable::heading(size_t max_width) const {
  if (rows_.size() < 2) return "";
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) {
    text += fmt::format("{}{}={}", text.empty() ? "In all rows: " : ", ", safe_text(name), safe_text(value));
  };
  for (const auto& [name, value] : common_) add(name, value);
  for (size_t c = 0; c < columns_.size(); ++c)
    if (!is_in_body(c) && !is_blank(rows_.front()[c])) add(columns_[c].header, rows_.front()[c]);
  if (text.empty()) return "";
  return (max_width > 0 ? wrapped(text, max_width) : text) + "\n";
}

std::string TextTable::body(bool colours, size_t max_width) const {
  const auto rows = safe_rows();
  std::vector<FittedColumn> fitted;
  std::vector<size_t> places;  // of the columns in the rows
  for (size_t c = 0; c < columns_.size(); ++c) {
    if (!is_in_body(c)) continue;
    const auto header = safe_text(columns_[c].header);
    size_t cells = 0;
    for (const auto& row : rows) cells = std::max(cells, display_width(row[c]));
    for (const auto& [limited, width] : limits_)
      if (limited == columns_[c].header) cells = std::min(cells, width);
    fitted.push_back({header, !columns_[c].is_right, is_kept(c), cells, display_width(header)});
    fitted.back().width = fitted.back().full_width();
    places.push_back(c);
  }
  if (max_width > 0 && !fit(fitted, choices_.left_out_first, max_width))
    return list_of(rows, tones_, fitted, places, colours, max_width);

  std::string text;
  // Adds the lines of a row, of which the first one may be the header.
  const auto add = [&](const std::vector<std::string>& row, bool is_header, Tone tone) {
    std::vector<std::vector<std::string>> lines;
    size_t height = 1;
    for (size_t i = 0; i < fitted.size(); ++i) {
      lines.push_back(lines_of(row[places[i]], std::max<size_t>(1, fitted[i].width)));
      if (fitted[i].is_shown) height = std::max(height, lines.back().size());
    }
    for (size_t l = 0; l < height; ++l) {
      std::string line;
      bool is_first = true;
      for (size_t i = 0; i < fitted.size(); ++i) {
        if (!fitted[i].is_shown) continue;
        const auto cell = l < lines[i].size() ? lines[i][l] : "";
        line += (is_first ? "" : "  ") + padded(cell, fitted[i].width, columns_[places[i]].is_right);
        is_first = false;
      }
      line = without_space_at_end(line);
      text += (!colours ? line : is_header ? bold(line) : coloured(line, tone)) + "\n";
    }
  };
  std::vector<std::string> headers;
  for (const auto& column : columns_) headers.push_back(safe_text(column.header));
  add(headers, /*is_header=*/true, Tone::plain);
  for (size_t i = 0; i < total_width(fitted); ++i) text += "─";
  text += "\n";
  for (size_t r = 0; r < rows.size(); ++r) add(rows[r], /*is_header=*/false, tones_[r]);
  return text + note_about(fitted, max_width);
}

}  // namespace attnbench
