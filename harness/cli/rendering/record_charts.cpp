// Draws the charts of the settings of a folder, beside each other or beside a table where there is room.
#include "harness/cli/rendering/record_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <unordered_map>

#include "harness/analysis/series.h"
#include "harness/cli/rendering/series_names.h"
#include "harness/cli/terminal.h"
#include "harness/schema/method_names.h"
#include "harness/text/errors.h"
#include "harness/text/log_chart.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

constexpr const char* kNames[] = {"auto", "always", "never"};
// The columns between two charts, or between a table and a chart.
constexpr size_t kGap = 3;
// The width where the output is no terminal.
constexpr size_t kUsualWidth = 120;
// The columns of the area of the points, at most; those to its left, with a label such as "12.3 ms"; and of a whole chart, at
// least.
constexpr size_t kMaxArea = 48, kMaxMargin = 9, kMinWidth = 30;

// Rows of text.
using Block = std::vector<std::string>;

bool are_shown(Charts charts) { return charts == Charts::always || (charts == Charts::on_terminals && is_terminal(stdout)); }

// Lengths are mostly multiples of 1024, for which "k" stands.
std::string length_text(double length) {
  const auto n = std::llround(length);
  return n >= 1024 && n % 1024 == 0 ? fmt::format("{}k", n / 1024) : fmt::format("{}", n);
}

// The escape codes of colours take no space.
size_t shown_width(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') i = std::min(text.find('m', i), text.size() - 1);
    else plain += text[i];
  }
  return display_width(plain);
}

size_t width_of(const Block& rows) {
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, shown_width(row));
  return width;
}

// The rows of several blocks of text beside each other.
Block beside(const std::vector<Block>& blocks) {
  size_t count = 0;
  for (const auto& block : blocks) count = std::max(count, block.size());
  Block rows(count);
  size_t begin = 0;
  for (const auto& block : blocks) {
    for (size_t i = 0; i < block.size(); ++i) {
      if (block[i].empty()) continue;
      const auto used = shown_width(rows[i]);
      rows[i] += std::string(begin > used ? begin - used : 0, ' ') + block[i];
    }
    begin += width_of(block) + kGap;
  }
  return rows;
}

// The blocks below each other, as many beside each other as fit, with an empty row between them.
Block arranged(const std::vector<Block>& blocks, size_t width) {
  Block rows;
  for (size_t begin = 0; begin < blocks.size();) {
    size_t end = begin + 1, used = width_of(blocks[begin]);
    while (end < blocks.size() && used + kGap + width_of(blocks[end]) <= width) used += kGap + width_of(blocks[end++]);
    if (!rows.empty()) rows.emplace_back();
    const auto group = beside({blocks.begin() + std::ptrdiff_t(begin), blocks.begin() + std::ptrdiff_t(end)});
    rows.insert(rows.end(), group.begin(), group.end());
    begin = end;
  }
  return rows;
}

void print_rows(const Block& rows) {
  for (const auto& row : rows) fmt::print("{}\n", row);
}

void print_charts(const RecordCharts& charts, size_t width) {
  print_rows(arranged(charts.charts, width));
  if (!charts.note.empty()) print_text(wrapped(charts.note, width) + "\n");
}

size_t available_width() {
  const auto width = table_width(stdout);
  return width > 0 ? width : kUsualWidth;
}

Block lines_of(const std::string& text) {
  Block lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The lines of a chart: the records that agree in everything but the method and the length.
struct Setting {
  std::string name;
  std::vector<ChartLine> lines;
  size_t points = 0;
  bool has_line = false;  // a method with times at two lengths
};

// The settings that can be drawn, those with the most points first. They are named by the axes in which the series with a time
// differ.
std::vector<Setting> settings_of(const std::vector<Record>& records) {
  auto all = series_of(records);
  std::erase_if(all, [](const Series& series) { return series.points("time").empty(); });
  const SeriesNames names(all);
  const MethodNames methods(records);
  std::vector<Setting> settings;
  std::unordered_map<std::string, size_t> index;
  for (const auto& series : all) {
    ChartLine line{.name = methods.of(series.method), .points = {}};
    for (const auto& point : series.points("time")) line.points.emplace_back(point.length, point.value);
    const auto [place, is_new] = index.emplace(names.setting(series), settings.size());
    if (is_new) settings.push_back({.name = place->first, .lines = {}});
    auto& setting = settings[place->second];
    setting.points += line.points.size();
    setting.has_line = setting.has_line || line.points.front().first < line.points.back().first;
    setting.lines.push_back(std::move(line));
  }
  std::erase_if(settings, [](const Setting& setting) { return !setting.has_line; });
  std::stable_sort(settings.begin(), settings.end(), [](const auto& a, const auto& b) { return a.points > b.points; });
  return settings;
}

}  // namespace

void add_charts_option(Command& command, Charts& charts) {
  const auto take = [&charts](const std::string& text) {
    for (size_t i = 0; i < std::size(kNames); ++i)
      if (text == kNames[i]) charts = Charts(i);
  };
  command.add("--charts", take, "when small charts of the times are shown beside the table; auto: on terminals",
              {.choices = {std::begin(kNames), std::end(kNames)}, .default_text = kNames[size_t(charts)]});
}

RecordCharts charts_of(const std::vector<Record>& records, size_t width, bool colours) {
  RecordCharts found;
  if (width < kMinWidth) return found;
  const auto all = settings_of(records);
  const auto shown = std::min(all.size(), kMaxCharts);
  for (size_t i = 0; i < shown; ++i) {
    std::vector<std::string> title = {"time/sequence against N"};
    if (!all[i].name.empty()) title.push_back(all[i].name);
    const auto columns = std::min(kMaxArea, width - kMaxMargin);
    found.charts.push_back(log_chart(all[i].lines, {.title = title,
                                                    .x_text = length_text,
                                                    .y_text = [](double ms) { return format_ms(ms); },
                                                    .columns = columns,
                                                    .colours = colours}));
  }
  if (all.size() > shown) found.note = fmt::format("({} more settings have no chart)", all.size() - shown);
  return found;
}

void print_charts(const std::vector<Record>& records, Charts charts) {
  if (!are_shown(charts)) return;
  const auto width = available_width();
  const auto found = charts_of(records, width, shows_colours(stdout));
  if (found.charts.empty()) return;
  print_charts(found, width);
  fmt::print("\n");
}

void print_records_beside_charts(const std::vector<Record>& records, Rows rows, Charts charts) {
  const auto width = available_width();
  const auto found = are_shown(charts) ? charts_of(records, width, shows_colours(stdout)) : RecordCharts{};
  if (found.charts.empty()) return print_records(records, Format::text, rows);
  const auto text = text_of_records(records, rows);
  auto table = text.has_table ? lines_of(text.table.body(shows_colours(stdout))) : Block{};
  const auto used = width_of(table) + kGap;
  if (table.empty() || used + width_of(found.charts.front()) > width) {
    print_records(records, Format::text, rows);
    fmt::print("\n");
    return print_charts(found, width);
  }
  auto beside_table = arranged(found.charts, width - used);
  fmt::print("{}", text.table.heading(width));
  // Of a long table, a terminal shows the end.
  if (table.size() > beside_table.size()) beside_table.insert(beside_table.begin(), table.size() - beside_table.size(), "");
  print_rows(beside({table, beside_table}));
  for (const auto& line : text.lines) print_paragraph(line);
  if (!found.note.empty()) print_paragraph(found.note);
}

void check_charts(Charts charts, bool has_charts) {
  if (charts == Charts::always && !has_charts)
    throw UsageError("--charts = always, but only the summary in the format text has charts");
}

}  // namespace attnbench
