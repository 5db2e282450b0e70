// Declares the options that several commands have, and prints text, tables, CSV and JSON as these options say.
#include "harness/cli/shared_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <stdexcept>
#include <utility>

#include "harness/cli/terminal.h"
#include "harness/records/records_csv.h"
#include "harness/text/notice.h"
#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

constexpr const char* kFormatNames[] = {"text", "markdown", "csv", "json"};

const char* name_of(Format format) { return kFormatNames[size_t(format)]; }

void print_csv(const std::vector<Record>& records) {
  fmt::print("{}", records_csv(records));
  const auto left_out = left_out_of_csv(records);
  if (left_out.empty()) return;
  std::fflush(stdout);
  print_notice(fmt::format("CSV leaves out the lists {}; --format json has them\n", fmt::join(left_out, ", ")));
}

}  // namespace

void add_format_option(Command& command, Format& format, std::initializer_list<Format> choices) {
  OptionTraits traits{.default_text = name_of(format)};
  for (const auto choice : choices) traits.choices.emplace_back(name_of(choice));
  const auto take = [&format, all = std::vector(choices)](const std::string& text) {
    for (const auto choice : all)
      if (text == name_of(choice)) format = choice;
  };
  command.add("--format", take, "format in which the result is printed", std::move(traits));
}

TableFormat table_format(Format format) {
  switch (format) {
    case Format::text: return TableFormat::text;
    case Format::markdown: return TableFormat::markdown;
    case Format::csv: return TableFormat::csv;
    case Format::json: break;
  }
  throw std::logic_error("JSON is not a format of tables");
}

void print_text(std::string_view text) { fmt::print("{}", safe_text(text, LineEnds::kept)); }

void print_paragraph(const std::string& text) {
  constexpr size_t kUsualWidth = 120;
  const auto width = table_width(stdout);
  print_text(wrapped(safe_text(text), width > 0 ? width : kUsualWidth) + "\n");
}

void print_table(const TextTable& table, Format format) {
  const bool is_text = format == Format::text;
  fmt::print("{}", table.render(table_format(format), is_text && shows_colours(stdout), is_text ? table_width(stdout) : 0));
}

void print_json(const Json& json, int indent) {
  fmt::print("{}\n", json.dump(indent, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace));
}

Json to_json(const std::vector<Record>& records) {
  auto all = Json::array();
  for (const auto& record : records) all.push_back(record.to_json());
  return all;
}

void print_records(const std::vector<Record>& records, Format format, Rows rows) {
  if (format == Format::json) return print_json(to_json(records));
  if (format == Format::csv) return print_csv(records);
  const auto text = text_of_records(records, rows);
  if (text.has_table) print_table(text.table, format);
  for (const auto& line : text.lines) {
    if (format == Format::markdown) print_text("\n" + markdown_text(line) + "\n");
    else print_paragraph(line);
  }
}

RecordText text_of_records(const std::vector<Record>& records, Rows rows) {
  std::vector<const Record*> all, shown;
  for (const auto& record : records)
    if (rows == Rows::all || record.text("outcome") != outcome::skipped) all.push_back(&record);
  for (const auto i : order_of_rows(all)) shown.push_back(all[i]);
  auto lines = legend_of(shown);
  if (rows != Rows::all)
    for (auto& line : skipped_in_words(records)) lines.push_back(std::move(line));
  return {.table = summary_table_of(shown), .has_table = !shown.empty() || records.empty(), .lines = std::move(lines)};
}

void print_sheet(const Sheet& sheet, Format format) {
  if (format == Format::text) return print_text(text_of(sheet, table_width(stdout)));
  TextTable table({"group", "name", "value"});
  for (const auto& [group, name, value] : sheet) table.add_row({group, name, value});
  print_table(table, format);
}

void add_records_argument(Command& command, std::string name, std::string& folder) {
  command.add(std::move(name), &folder,
              "folder that holds records.jsonl, the path of such a file, or a folder that contains one such folder",
              {.required = true, .completion = Completion::files});
}

void add_sweep_argument(Command& command, std::string& file, bool required) {
  command.add("file", &file, "sweep file, or the name of a sweep that `attnbench list sweeps` shows",
              {.required = required, .completion = Completion::sweeps});
}

void add_set_option(Command& command, std::vector<std::string>& settings) {
  command.add("--set", &settings, "replace the value of an axis or a setting of the file, such as query_len=512-2048*2",
              {.placeholder = "KEY=VALUE"});
}

void add_like_option(Command& command, std::string& like) {
  command.add("--like", &like,
              "method whose reference the results of Python functions are compared with that declare none, such as softmax",
              {.placeholder = "METHOD", .completion = Completion::methods});
}

void add_forked_option(Command& command, bool& forked) {
  command.add(
      "--forked", &forked,
      "if a method is in Python, fork all processes from one that has imported torch, which saves seconds for each; otherwise "
      "they start as programs");
}

void add_quiet_option(Command& command, bool& quiet, std::string description) {
  command.add("--quiet", &quiet, std::move(description), {.short_name = "-q"});
}

void add_alpha_option(Command& command, double& alpha) {
  command.add("--alpha", &alpha, "max probability of a false alarm in all cases together", {.min = 0, .max = 1});
}

void add_criteria_options(Command& command, Criteria& criteria) {
  add_alpha_option(command, criteria.alpha);
  command.add("--min-shift", &criteria.min_shift, "smallest relative slowdown that counts as a regression, 0.03 for 3 %",
              {.min = 0});
  command.add("--margin", &criteria.margin, "a case passes only if a relative slowdown larger than this can be excluded",
              {.min = 0});
}

}  // namespace attnbench
