// A table of text, rendered with aligned columns, as Markdown or as CSV.
#pragma once

#include <string>
#include <vector>

namespace attnbench {

enum class TableFormat { text, markdown, csv };

// What a row or a line says of its subject. It is shown as a colour where there are colours.
enum class Tone { plain, good, warning, bad, faint };
// `text` between the escape codes that colour it on a terminal.
std::string coloured(const std::string& text, Tone tone);

class TextTable {
 public:
  enum class Align { left, right };
  void add_column(std::string header, Align align = Align::left);
  void add_row(std::vector<std::string> cells, Tone tone = Tone::plain);  // missing cells at the end are empty
  // `colours`: the header is bold and rows have the colours of their tones.
  std::string render(TableFormat format = TableFormat::text, bool colours = false) const;

 private:
  struct Column {
    std::string header;
    Align align;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<Tone> tones_;  // of each row
};

// The text with a backslash before every character that Markdown would interpret.
std::string markdown_text(const std::string& text);

}  // namespace attnbench
