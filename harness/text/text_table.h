// A table of text, rendered with aligned columns, as Markdown or as CSV.
#pragma once

#include <string>
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
  // With `colours`, the header is bold and rows have the colours of their tones; CSV never has colours.
  std::string render(TableFormat format = TableFormat::text, bool colours = false) const;

 private:
  struct Column {
    std::string header;
    Align align;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<Tone> tones_;  // one for each row
};

// `text` with a backslash before every character that Markdown would interpret.
std::string markdown_text(const std::string& text);

}  // namespace attnbench
