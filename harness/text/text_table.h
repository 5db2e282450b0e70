// A table of text, rendered with aligned columns, as Markdown or as CSV.
#pragma once

#include <string>
#include <vector>

namespace attnbench {

enum class TableFormat { text, markdown, csv };

class TextTable {
 public:
  enum class Align { left, right };
  void add_column(std::string header, Align align = Align::left);
  void add_row(std::vector<std::string> cells);  // missing cells at the end are empty
  std::string render(TableFormat format = TableFormat::text) const;

 private:
  struct Column {
    std::string header;
    Align align;
  };
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// The text with a backslash before every character that Markdown would interpret.
std::string markdown_text(const std::string& text);

}  // namespace attnbench
