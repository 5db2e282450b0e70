// Options that several commands have in common, and the functions that print as these options say.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "harness/cli/command_line.h"
#include "harness/cli/rendering/record_table.h"
#include "harness/schema/record.h"
#include "harness/statistics/comparison.h"
#include "harness/text/text_table.h"

namespace attnbench {

// How a command prints data.
enum class Format { text, markdown, csv, json };

// Adds --format with these choices.
void add_format_option(Command& command, Format& format,
                       std::initializer_list<Format> choices = {Format::text, Format::markdown, Format::csv, Format::json});
// The table format of the same name. Throws std::logic_error for json, which is no format of tables.
TableFormat table_format(Format format);
// Prints text as safe_text() with line ends to standard output.
void print_text(std::string_view text);
// Prints a paragraph to standard output, wrapped to the terminal, or to 120 columns where standard output is none.
void print_paragraph(const std::string& text);
// Prints a table to standard output, on a terminal in colours if it shows them, and no wider than it is.
void print_table(const TextTable& table, Format format = Format::text);
// Prints JSON to standard output: on several lines, or on one line if `indent` is -1. Invalid UTF-8 is replaced, and characters
// outside ASCII are escaped.
void print_json(const Json& json, int indent = 2);
// The records as a JSON array.
Json to_json(const std::vector<Record>& records);
// The rows of a table of records: all, or all but those of skipped cases, which are counted below the table.
enum class Rows { all, without_skipped };
// Prints a table that sums up the records or, as JSON, every value of them. CSV has every value but lists, such as those of
// samples; a notice names the lists that it leaves out.
void print_records(const std::vector<Record>& records, Format format, Rows rows);
// The table of records that print_records() prints, and the lines that it prints below it.
struct RecordText {
  TextTable table;
  bool has_table = true;
  std::vector<std::string> lines;
};
RecordText text_of_records(const std::vector<Record>& records, Rows rows);
// Prints a sheet in any format but JSON.
void print_sheet(const Sheet& sheet, Format format);

// Adds a positional argument that names a folder or a file of records.
void add_records_argument(Command& command, std::string name, std::string& folder);
// Adds the positional argument "file" that names a sweep. The command passes its value to find_file(), and
// has to check itself that there is one if it is not `required`.
void add_sweep_argument(Command& command, std::string& file, bool required = true);
// Adds --set.
void add_set_option(Command& command, std::vector<std::string>& settings);
// Adds --like.
void add_like_option(Command& command, std::string& like);
// Adds --forked.
void add_forked_option(Command& command, bool& forked);
// Adds --quiet.
void add_quiet_option(Command& command, bool& quiet, std::string description = "print no progress");
// Adds --alpha.
void add_alpha_option(Command& command, double& alpha);
// Adds --alpha, --min-shift and --margin.
void add_criteria_options(Command& command, Criteria& criteria);

}  // namespace attnbench
