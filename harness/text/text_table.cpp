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

std::string TextTable::render(TableFormat format, bool colours) const {
  std::vector<std::vector<std::string>> rows(1);
  for (const auto& column : columns_) rows[0].push_back(column.header);
  rows.insert(rows.end(), rows_.begin(), rows_.end());
  std::string text;
  if (format == TableFormat::csv) {
    for (auto& row : rows) {
      for (size_t c = 0; c < row.size(); ++c)
        if (columns_[c].align == Align::left) row[c] = csv_text(row[c]);
      text += csv_row(row);
    }
    return text;
  }
  const bool markdown = format == TableFormat::markdown;
  std::vector<size_t> widths(columns_.size(), markdown ? 3 : 0);
  for (auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) {
      row[c] = safe_text(row[c]);
      if (markdown) row[c] = markdown_text(row[c]);
      widths[c] = std::max(widths[c], display_width(row[c]));
    }
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line = markdown ? "|" : "";
    for (size_t c = 0; c < columns_.size(); ++c) {
      const auto cell = padded(rows[r][c], widths[c], columns_[c].align);
      line += markdown ? fmt::format(" {} |", cell) : fmt::format("{}{}", c > 0 ? "  " : "", cell);
    }
    while (!markdown && line.ends_with(' ')) line.pop_back();
    if (colours) line = r == 0 ? "\x1b[1m" + line + "\x1b[0m" : coloured(line, tones_[r - 1]);
    text += line + "\n";
    if (r > 0) continue;
    if (markdown) {
      text += "|";
      for (size_t c = 0; c < columns_.size(); ++c)
        text += columns_[c].align == Align::left ? fmt::format(" {:-<{}} |", "", widths[c])
                                                 : fmt::format(" {:-<{}}: |", "", widths[c] - 1);
      text += "\n";
    } else {
      size_t total = columns_.empty() ? 0 : 2 * (columns_.size() - 1);
      for (const auto width : widths) total += width;
      for (size_t i = 0; i < total; ++i) text += "─";
      text += "\n";
    }
  }
  return text;
}

}  // namespace attnbench
