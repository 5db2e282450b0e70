// Makes records.csv from the columns that hold a single value.
#include "harness/records/records_csv.h"

#include <algorithm>

#include "harness/text/csv.h"

namespace attnbench {
namespace {

bool is_list(const Column& column) { return column.type == ColumnType::numbers; }

// Writes numbers as JSON does, and text as csv_text() does.
std::string csv_cell(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? csv_text(value.get<std::string>()) : value.dump();
}

}  // namespace

std::vector<std::string> left_out_of_csv(const std::vector<Record>& records) {
  std::vector<const Record*> all;
  for (const auto& record : records) all.push_back(&record);
  std::vector<std::string> names;
  for (const auto& column : table_columns(all))
    if (is_list(column) && std::any_of(all.begin(), all.end(), [&](const Record* r) { return r->has(column.name); }))
      names.push_back(column.name);
  return names;
}

std::string records_csv(const std::vector<Record>& records) {
  std::vector<const Record*> all;
  for (const auto& record : records) all.push_back(&record);
  auto columns = table_columns(all);
  std::erase_if(columns, is_list);
  std::vector<std::string> cells;
  for (const auto& column : columns) cells.push_back(csv_text(column.name));
  auto csv = csv_row(cells);
  for (const auto* record : all) {
    cells.clear();
    for (const auto& column : columns) cells.push_back(csv_cell(record->get(column.name)));
    csv += csv_row(cells);
  }
  return csv;
}

}  // namespace attnbench
