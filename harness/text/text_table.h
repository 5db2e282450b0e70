// A table of text, rendered with aligned columns, as Markdown or as CSV.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace attnbench {

enum class TableFormat { text, markdown, csv };

// Whether a row or a line reports good or bad news. On a terminal it is shown as the colour of the text.
enum class Tone { plain, good, warning, bad, faint };
// `text` between the escape codes that give it the colour of the tone on a terminal.
std::string coloured(const std::string& text, Tone tone);

// A column of a table; a header alone is one that is aligned to the left.
struct TableColumn {
  TableColumn(const char* text) : header(text) {}
  TableColumn(std::string text) : header(std::move(text)) {}

  std::string header;
  bool is_right = false;  // aligned to the right, such as one of numbers
};
// A column that is aligned to the right.
inline TableColumn right(TableColumn column) {
  column.is_right = true;
  return column;
}

// Which columns of a table are left out last and first where it is too wide, by their headers.
struct TableChoices {
  // Those that answer the question for which the table is printed. A table never leaves them out, however narrow it has to be,
  // and never names them above itself. If there are none, this is the first column alone.
  std::vector<std::string> answers = {};
  // Those that tell rows apart. A table never leaves them out if they differ.
  std::vector<std::string> kept = {};
  // Those that a table leaves out if it is too wide, in the order in which it does.
  std::vector<std::string> left_out_first = {};
};

// Add the columns first, then the rows.
class TextTable {
 public:
  TextTable() = default;
  explicit TextTable(std::vector<TableColumn> columns, TableChoices choices = {})
      : columns_(std::move(columns)), choices_(std::move(choices)) {}

  void add_columns(const std::vector<TableColumn>& columns) { columns_.insert(columns_.end(), columns.begin(), columns.end()); }
  void choose(TableChoices choices) { choices_ = std::move(choices); }
  void add_row(std::vector<std::string> cells, Tone tone = Tone::plain);  // missing cells at the end are empty
  // The column's texts are wrapped to so many columns of text, also where the table may be of any width.
  void limit_width(std::string header, size_t width) { limits_.emplace_back(std::move(header), width); }
  // Names a value above the table that all rows have and no column shows.
  void add_common(std::string name, std::string value) { common_.emplace_back(std::move(name), std::move(value)); }

  // With `colours`, the header is bold and rows have the colours of their tones; CSV never has colours.
  //
  // Text begins with heading(), and leaves out the columns that it names, and those that are empty or "–" in all of several rows.
  // Markdown and CSV have every column.
  //
  // Text fits into `max_width` columns, unless that is 0. A table that is too wide is made narrower in these steps until it fits,
  // and a note below it names the columns that were left out:
  //  1. headers are wrapped, then texts longer than 24 characters, those of the widest column first;
  //  2. the columns of TableChoices::left_out_first are left out, in that order;
  //  3. texts longer than 12 characters are wrapped;
  //  4. columns are left out from the right, except those that answer and those that are kept;
  //  5. texts longer than 8 characters are wrapped;
  //  6. each row is printed as a list, with a line for each column that is left.
  std::string render(TableFormat format = TableFormat::text, bool colours = false, size_t max_width = 0) const;
  // What text has above the table: the values that are the same in all of several rows, such as
  // "In all rows: device=cpu, heads=8". Empty text if there are none.
  std::string heading(size_t max_width = 0) const;
  // What text has below heading().
  std::string body(bool colours = false, size_t max_width = 0) const;

 private:
  using Rows = std::vector<std::vector<std::string>>;
  Rows safe_rows() const;
  bool is_answer(size_t column) const;
  bool is_kept(size_t column) const;
  // Whether the column tells rows apart, or answers the question.
  bool is_in_body(size_t column) const;
  std::string render_csv(Rows rows) const;
  std::string render_markdown(Rows rows) const;

  std::vector<TableColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<Tone> tones_;  // one for each row
  TableChoices choices_;
  std::vector<std::pair<std::string, size_t>> limits_;
  std::vector<std::pair<std::string, std::string>> common_;
};

// `text` with a backslash before every character that Markdown would interpret.
std::string markdown_text(const std::string& text);

}  // namespace attnbench
