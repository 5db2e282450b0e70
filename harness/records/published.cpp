// Reads the CSV file of published values, and writes them into the records of the cases that they are about.
#include "harness/records/published.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/files/csv_file.h"
#include "harness/text/csv.h"
#include "harness/text/errors.h"
#include "harness/text/nearest.h"
#include "harness/text/units.h"

namespace attnbench {

Published::Published(const std::string& path) {
  const auto file = read_csv(path);
  if (file.empty()) throw UsageError(fmt::format("{}: empty, expected a row of column names", path));
  const auto& header = file[0].cells;
  std::vector<std::string> known = {"time_ms", "memory_bytes", "outcome", "source"};
  for (auto& axis : axis_names()) known.push_back(std::move(axis));
  for (const auto& name : header)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UsageError(fmt::format("{}:{}: unknown column '{}'{}", path, file[0].line, name, suggestion(name, known)));
  for (size_t i = 1; i < file.size(); ++i) {
    const auto& [line, cells] = file[i];
    if (cells.size() != header.size())
      throw UsageError(
          fmt::format("{}:{}: {}, expected {} as in the first row", path, line, count_of(cells.size(), "cell"), header.size()));
    Row row;
    for (size_t c = 0; c < cells.size(); ++c) {
      if (cells[c].empty()) continue;
      const auto& name = header[c];
      if (find_axis(name)) {
        row.axes.emplace_back(name, cells[c]);
        continue;
      }
      Json value = cells[c];
      if (name == "time_ms" || name == "memory_bytes") {
        const auto number = csv_number(cells[c]);
        if (!number) throw UsageError(fmt::format("{}:{}: {} = '{}', expected a number", path, line, name, cells[c]));
        value = *number;
      }
      row.values.emplace_back("published_" + name, value);
    }
    rows_.push_back(std::move(row));
  }
}

void Published::annotate(Record& record) const {
  const auto matches = [&](const std::pair<std::string, std::string>& axis) {
    const auto& value = record.get(axis.first);
    return (value.is_string() ? value.get<std::string>() : value.dump()) == axis.second;
  };
  for (const auto& row : rows_) {
    if (!std::all_of(row.axes.begin(), row.axes.end(), matches)) continue;
    for (const auto& [column, value] : row.values) record.set(column, value);
  }
}

}  // namespace attnbench
