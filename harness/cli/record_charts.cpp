#include "harness/cli/record_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "harness/analysis/series.h"
#include "harness/cli/series_names.h"
#include "harness/cli/terminal.h"
#include "harness/text/log_chart.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

constexpr const char* kNames[] = {"auto", "always", "never"};
// The columns between two charts, or between a table and a chart.
constexpr size_t kGap = 3;
// The width where the output is no terminal.
constexpr size_t kUsualWidth = 120;

bool are_shown(Charts charts) { return charts == Charts::always || (charts == Charts::on_terminals && is_terminal(stdout)); }

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

size_t width_of(const std::vector<std::string>& rows) {
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, shown_width(row));
  return width;
}

// The rows of several blocks of text beside each other.
std::vector<std::string> beside(const std::vector<std::vector<std::string>>& blocks) {
  size_t count = 0;
  for (const auto& block : blocks) count = std::max(count, block.size());
  std::vector<std::string> rows(count);
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

void print_rows(const std::vector<std::string>& rows) {
  for (const auto& row : rows) fmt::print("{}\n", row);
}

// The blocks in groups that fit beside each other.
void print_blocks(const std::vector<std::vector<std::string>>& blocks, size_t width) {
  for (size_t begin = 0; begin < blocks.size();) {
    size_t end = begin + 1, used = width_of(blocks[begin]);
    while (end < blocks.size() && used + kGap + width_of(blocks[end]) <= width) used += kGap + width_of(blocks[end++]);
    print_rows(beside({blocks.begin() + std::ptrdiff_t(begin), blocks.begin() + std::ptrdiff_t(end)}));
    fmt::print("\n");
    begin = end;
  }
}

size_t available_width() {
  const auto width = table_width(stdout);
  return width > 0 ? width : kUsualWidth;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

void add_charts_option(Command& command, Charts& charts) {
  const auto take = [&charts](const std::string& text) {
    for (size_t i = 0; i < std::size(kNames); ++i)
      if (text == kNames[i]) charts = Charts(i);
  };
  command.add("--charts", take, "when small charts of the times are printed as text; auto: on terminals",
              {.choices = {std::begin(kNames), std::end(kNames)}, .default_text = kNames[size_t(charts)]});
}

std::vector<std::vector<std::string>> charts_of(const std::vector<Record>& records, bool colours) {
  const auto all = series_of(records);
  const SeriesNames names(all);
  struct Setting {
    std::vector<ChartLine> lines;
    size_t points = 0;
    bool has_line = false;  // a method with two points or more
  };
  std::vector<std::string> order;
  std::map<std::string, Setting> settings;
  for (const auto& series : all) {
    ChartLine line{.name = series.method, .points = {}};
    for (const auto& point : series.points("time")) line.points.emplace_back(point.length, point.value);
    if (line.points.empty()) continue;
    const auto name = names.setting(series);
    if (!settings.contains(name)) order.push_back(name);
    auto& setting = settings[name];
    setting.points += line.points.size();
    setting.has_line = setting.has_line || line.points.front().first < line.points.back().first;
    setting.lines.push_back(std::move(line));
  }
  std::erase_if(order, [&](const auto& name) { return !settings.at(name).has_line; });
  std::stable_sort(order.begin(), order.end(),
                   [&](const auto& a, const auto& b) { return settings.at(a).points > settings.at(b).points; });
  if (order.size() > kMaxCharts) order.resize(kMaxCharts);

  std::vector<std::vector<std::string>> charts;
  for (const auto& name : order) {
    const auto title = fmt::format("time of a sequence against N{}{}", name.empty() ? "" : ": ", name);
    charts.push_back(log_chart(settings.at(name).lines,
                               {.title = title, .x_text = length_text, .y_text = format_ms, .colours = colours}));
  }
  return charts;
}

void print_charts(const std::vector<Record>& records, Charts charts) {
  if (are_shown(charts)) print_blocks(charts_of(records, shows_colours(stdout)), available_width());
}

void print_records_beside_charts(const std::vector<Record>& records, Rows rows, Charts charts) {
  const auto blocks = are_shown(charts) ? charts_of(records, shows_colours(stdout)) : std::vector<std::vector<std::string>>{};
  if (blocks.empty()) return print_records(records, Format::text, rows);
  const auto text = text_of_records(records, rows);
  const auto table = text.has_table ? lines_of(text.table.render(TableFormat::text, shows_colours(stdout))) : std::vector<std::string>{};
  std::vector<std::string> chart_rows;
  for (const auto& block : blocks) {
    if (!chart_rows.empty()) chart_rows.emplace_back();
    chart_rows.insert(chart_rows.end(), block.begin(), block.end());
  }
  if (width_of(table) + kGap + width_of(chart_rows) <= available_width()) {
    print_rows(beside({table, chart_rows}));
    for (const auto& line : text.lines) print_text(line + "\n");
    return;
  }
  print_records(records, Format::text, rows);
  fmt::print("\n");
  print_blocks(blocks, available_width());
}

}  // namespace attnbench
