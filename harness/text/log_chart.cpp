// Draws lines with the dots of Braille characters, and places labels so that none touches another.
#include "harness/text/log_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

// A Braille character has two columns of four dots each.
constexpr size_t kDotColumns = 2, kDotRows = 4;
constexpr uint8_t kDots[kDotRows][kDotColumns] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
constexpr int kFirstBraille = 0x2800;
constexpr int kColours[] = {36, 33, 32, 35, 34, 31};  // of the foreground: cyan, yellow, green, magenta, blue, red
// A shorter vertical axis would show noise as a trend.
constexpr double kMinFactor = 4;
constexpr int kNoLine = -1, kSeveralLines = -2;

struct Cell {
  uint8_t dots = 0;
  int dots_of = kNoLine;    // the line that the dots belong to
  int letter_of = kNoLine;  // the line that has a point here
};

// The UTF-8 text of a character from U+0800 to U+FFFF.
std::string utf8(int code) { return {char(0xE0 | (code >> 12)), char(0x80 | ((code >> 6) & 0x3F)), char(0x80 | (code & 0x3F))}; }

// The text in the colour of the line; without a colour for what belongs to no single line.
std::string in_colour_of(int line, const std::string& text, bool colours) {
  return colours && line >= 0 ? fmt::format("\x1b[{}m{}\x1b[0m", kColours[size_t(line) % std::size(kColours)], text) : text;
}

std::string letter_of(int line) { return std::string(1, char('a' + line)); }

// One axis: where a value lies, in dots.
struct Scale {
  double low = INFINITY, high = -INFINITY;  // logarithms
  size_t dots = 0;

  void include(double value) {
    low = std::min(low, std::log(value));
    high = std::max(high, std::log(value));
  }
  // Makes the axis so long that its end is this many times its beginning.
  void widen(double factor) {
    const double missing = std::max(0.0, std::log(factor) - (high - low));
    low -= missing / 2;
    high += missing / 2;
  }
  size_t place(double value) const {
    const auto last = double(dots - 1);
    return size_t(std::lround(high > low ? (std::log(value) - low) / (high - low) * last : last / 2));
  }
};

// The characters that the points and the lines between them are drawn with.
class Area {
 public:
  Area(size_t columns, size_t rows, Scale x, Scale y) : columns_(columns), cells_(columns * rows), x_(x), y_(y) {
    x_.dots = columns * kDotColumns;
    y_.dots = rows * kDotRows;
  }

  void draw(const ChartLine& line, int number) {
    for (size_t i = 0; i + 1 < line.points.size(); ++i) join(line.points[i], line.points[i + 1], number);
    for (const auto& [x, y] : line.points) {
      auto& letter = cells_[row_of(y) * columns_ + column_of(x)].letter_of;
      letter = letter == kNoLine || letter == number ? number : kSeveralLines;
    }
  }

  std::string row(size_t number, bool colours) const {
    std::string text, run;  // the run has the colour of one line
    int line_of_run = kNoLine;
    for (size_t column = 0; column < columns_; ++column) {
      const auto& cell = cells_[number * columns_ + column];
      const int line = cell.letter_of != kNoLine ? cell.letter_of : cell.dots_of;
      if (line != line_of_run) text += in_colour_of(line_of_run, std::exchange(run, ""), colours);
      line_of_run = line;
      if (cell.letter_of == kSeveralLines) run += '+';
      else if (cell.letter_of != kNoLine) run += letter_of(cell.letter_of);
      else run += cell.dots != 0 ? utf8(kFirstBraille + cell.dots) : " ";
    }
    return text + in_colour_of(line_of_run, run, colours);
  }

  bool has_common_points() const {
    return std::any_of(cells_.begin(), cells_.end(), [](const Cell& cell) { return cell.letter_of == kSeveralLines; });
  }

  size_t column_of(double x) const { return x_.place(x) / kDotColumns; }
  // Rows are counted from the top.
  size_t row_of(double y) const { return (y_.dots - 1 - y_.place(y)) / kDotRows; }

 private:
  using Point = std::pair<double, double>;

  void join(const Point& from, const Point& to, int number) {
    const auto x0 = double(x_.place(from.first)), x1 = double(x_.place(to.first));
    const auto y0 = double(y_.place(from.second)), y1 = double(y_.place(to.second));
    const double steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1.0});
    for (double step = 0; step <= steps; ++step) {
      const auto x = size_t(std::lround(x0 + step / steps * (x1 - x0)));
      const auto y = y_.dots - 1 - size_t(std::lround(y0 + step / steps * (y1 - y0)));
      auto& cell = cells_[y / kDotRows * columns_ + x / kDotColumns];
      cell.dots |= kDots[y % kDotRows][x % kDotColumns];
      cell.dots_of = number;
    }
  }

  size_t columns_;
  std::vector<Cell> cells_;
  Scale x_, y_;
};

// The lines that are drawn, in their order, and the names of the others.
struct Choice {
  std::vector<const ChartLine*> drawn;
  std::vector<std::string> others;
};

Choice choice_of(const std::vector<ChartLine>& lines) {
  std::vector<const ChartLine*> sorted;
  for (const auto& line : lines)
    if (!line.points.empty()) sorted.push_back(&line);
  const auto last = [](const ChartLine* line) { return line->points.back().second / line->points.back().first; };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const auto* a, const auto* b) { return last(a) < last(b); });
  std::set<const ChartLine*> chosen;
  const auto count = std::min(sorted.size(), kMaxChartLines);
  for (size_t i = 0; i < count; ++i) chosen.insert(sorted[count == 1 ? 0 : i * (sorted.size() - 1) / (count - 1)]);
  Choice choice;
  for (const auto& line : lines) {
    if (chosen.contains(&line)) choice.drawn.push_back(&line);
    else if (!line.points.empty()) choice.others.push_back(line.name);
  }
  return choice;
}

// The labels of the rows: those of the ends of the axis and, unless they are beside another label, of the smallest and the
// largest value and of powers of ten.
std::vector<std::string> row_labels(const Area& area, const Scale& y, const Scale& values, const ChartOptions& options) {
  std::vector<std::string> labels(options.rows);
  const auto add = [&](double value) {
    const auto row = area.row_of(value);
    for (size_t near = row > 0 ? row - 1 : 0; near <= std::min(row + 1, options.rows - 1); ++near)
      if (!labels[near].empty()) return;
    labels[row] = options.y_text(value);
  };
  for (const double end : {y.high, y.low, values.high, values.low}) add(std::exp(end));
  for (double power = std::ceil(y.low / std::log(10.0)); power * std::log(10.0) < y.high; ++power) add(std::pow(10.0, power));
  return labels;
}

// The horizontal axis with a mark at each labelled place, and the row of the labels.
struct HorizontalAxis {
  std::vector<std::string> marks;
  std::string labels;

  explicit HorizontalAxis(size_t columns) : marks(columns, "─"), labels(columns, ' ') {}

  // Adds the label, unless it would touch another one. Labels are plain ASCII text.
  void add(size_t column, const std::string& label) {
    if (label.size() > labels.size()) return;
    const auto begin = std::min(column - std::min(column, label.size() / 2), labels.size() - label.size());
    for (size_t i = begin > 0 ? begin - 1 : 0; i < std::min(begin + label.size() + 1, labels.size()); ++i)
      if (labels[i] != ' ') return;
    labels.replace(begin, label.size(), label);
    marks[column] = "┬";
  }
};

HorizontalAxis horizontal_axis(const Area& area, const Choice& choice, const ChartOptions& options) {
  std::set<double> places;
  for (const auto* line : choice.drawn)
    for (const auto& [place, value] : line->points) places.insert(place);
  HorizontalAxis axis(options.columns);
  axis.add(area.column_of(*places.begin()), options.x_text(*places.begin()));
  axis.add(area.column_of(*places.rbegin()), options.x_text(*places.rbegin()));
  for (const auto place : places) axis.add(area.column_of(place), options.x_text(place));
  return axis;
}

// Rows of entries with two spaces between them.
class Legend {
 public:
  explicit Legend(size_t width) : width_(width) {}

  void add(std::string text, int line, bool colours) {
    text = shortened(safe_text(text), width_);
    const auto needs = display_width(text);
    if (rows_.empty() || used_ + 2 + needs > width_) {
      rows_.emplace_back();
      used_ = 0;
    }
    rows_.back() += (used_ == 0 ? "" : "  ") + in_colour_of(line, text, colours);
    used_ += (used_ == 0 ? 0 : 2) + needs;
  }
  const std::vector<std::string>& rows() const { return rows_; }

 private:
  size_t width_, used_ = 0;
  std::vector<std::string> rows_;
};

void append_lines(std::vector<std::string>& rows, const std::string& text, size_t width) {
  std::istringstream stream(wrapped(safe_text(text), width));
  for (std::string line; std::getline(stream, line);) rows.push_back(shortened(line, width));
}

void append_legend(std::vector<std::string>& rows, const Choice& choice, bool has_common_points, size_t width, bool colours) {
  Legend legend(width);
  for (size_t i = 0; i < choice.drawn.size(); ++i) legend.add(letter_of(int(i)) + " " + choice.drawn[i]->name, int(i), colours);
  if (has_common_points) legend.add("+ several", kNoLine, colours);
  rows.insert(rows.end(), legend.rows().begin(), legend.rows().end());
  if (choice.others.empty()) return;
  std::string names;
  for (const auto& name : choice.others) names += (names.empty() ? "" : ", ") + name;
  append_lines(rows, "not drawn: " + names, width);
}

std::string spaces(size_t count) { return std::string(count, ' '); }

}  // namespace

std::vector<std::string> log_chart(const std::vector<ChartLine>& lines, const ChartOptions& options) {
  const auto choice = choice_of(lines);
  if (choice.drawn.empty()) return {};
  Scale x, y;
  for (const auto* line : choice.drawn)
    for (const auto& [place, value] : line->points) {
      x.include(place);
      y.include(value);
    }
  const auto values = y;
  y.widen(kMinFactor);
  Area area(options.columns, options.rows, x, y);
  for (size_t i = 0; i < choice.drawn.size(); ++i) area.draw(*choice.drawn[i], int(i));

  const auto labels = row_labels(area, y, values, options);
  size_t margin = 0;
  for (const auto& label : labels) margin = std::max(margin, display_width(label));
  const auto width = margin + 2 + options.columns;
  std::vector<std::string> rows;
  for (const auto& line : options.title) append_lines(rows, line, width);
  for (size_t row = 0; row < options.rows; ++row)
    rows.push_back(spaces(margin - display_width(labels[row])) + labels[row] + (labels[row].empty() ? " │" : " ┤") +
                   area.row(row, options.colours));
  const auto axis = horizontal_axis(area, choice, options);
  rows.push_back(fmt::format("{} └{}", spaces(margin), fmt::join(axis.marks, "")));
  rows.push_back(spaces(margin + 2) + axis.labels);
  append_legend(rows, choice, area.has_common_points(), width, options.colours);
  for (auto& row : rows) row.erase(row.find_last_not_of(' ') + 1);
  return rows;
}

}  // namespace attnbench
