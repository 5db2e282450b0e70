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

// Add the columns first, then the rows.
class TextTable {
 public:
  enum class Align { left, right };
  void add_column(std::string header, Align align = Align::left);
  void add_row(std::vector<std::string> cells, Tone tone = Tone::plain);  // missing cells at the end are empty
  // The columns that a table leaves out if it is too wide, by their headers, and the order in which it does.
  void leave_out_first(std::vector<std::string> headers) { left_out_first_ = std::move(headers); }
  // With `colours`, the header is bold and rows have the colours of their tones; CSV never has colours.
  //
  // Text fits into `max_width` columns, unless that is 0. A table that is too wide is made narrower in these steps until it fits,
  // and a note below it names the columns that were changed:
  //  1. texts longer than 24 characters are shortened to 24, those of the widest column first;
  //  2. the columns of leave_out_first() are left out, in that order;
  //  3. texts longer than 8 characters are shortened to 8, those of the widest column first;
  //  4. columns are left out from the right, down to the first one.
  std::string render(TableFormat format = TableFormat::text, bool colours = false, size_t max_width = 0) const;

 private:
  struct Column {
    std::string header;
    Align align;
  };
  using Rows = std::vector<std::vector<std::string>>;
  std::string render_csv(Rows rows) const;
  std::string render_markdown(Rows rows) const;
  std::string render_text(Rows rows, bool colours, size_t max_width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<Tone> tones_;  // one for each row
  std::vector<std::string> left_out_first_;
};

// `text` with a backslash before every character that Markdown would interpret.
std::string markdown_text(const std::string& text);

}  // namespace attnbench
