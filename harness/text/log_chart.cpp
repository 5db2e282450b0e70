#include "harness/text/log_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

constexpr size_t kMaxLines = 26;  // the letters
// A Braille character has two columns of four dots each.
constexpr size_t kDotColumns = 2, kDotRows = 4;
constexpr uint8_t kDots[kDotRows][kDotColumns] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
constexpr int kFirstBraille = 0x2800;
constexpr int kColours[] = {36, 33, 32, 35, 34, 31};  // of the foreground: cyan, yellow, green, magenta, blue, red
constexpr int kNoLine = -1, kSeveralLines = -2;

struct Cell {
  uint8_t dots = 0;
  int dots_of = kNoLine;    // the line that the dots belong to
  int letter_of = kNoLine;  // the line that has a point here
};

// The UTF-8 text of a character from U+0800 to U+FFFF.
std::string utf8(int code) {
  return {char(0xE0 | (code >> 12)), char(0x80 | ((code >> 6) & 0x3F)), char(0x80 | (code & 0x3F))};
}

// One axis: where a value lies, in dots.
struct Scale {
  double low = INFINITY, high = -INFINITY;  // logarithms
  size_t dots = 0;

  void include(double value) {
    low = std::min(low, std::log(value));
    high = std::max(high, std::log(value));
  }
  double place(double value) const {
    return high > low ? (std::log(value) - low) / (high - low) * double(dots - 1) : double(dots - 1) / 2;
  }
};

class Area {
 public:
  Area(size_t columns, size_t rows, Scale x, Scale y) : columns_(columns), cells_(columns * rows), x_(x), y_(y) {
    x_.dots = columns * kDotColumns;
    y_.dots = rows * kDotRows;
  }

  void draw(const ChartLine& line, int number) {
    for (size_t i = 0; i + 1 < line.points.size(); ++i) join(line.points[i], line.points[i + 1], number);
    for (const auto& [x, y] : line.points) {
      auto& letter = at(column_of(x), row_of(y)).letter_of;
      letter = letter == kNoLine || letter == number ? number : kSeveralLines;
    }
  }

  std::string row(size_t number, bool colours) const {
    std::string text;
    for (size_t column = 0; column < columns_; ++column) {
      const auto& cell = cells_[number * columns_ + column];
      const bool has_letter = cell.letter_of != kNoLine;
      const auto shown = cell.letter_of == kSeveralLines ? std::string("+")
                         : has_letter                    ? std::string(1, char('a' + cell.letter_of))
                         : cell.dots != 0                ? utf8(kFirstBraille + cell.dots)
                                                         : std::string(" ");
      const int of = has_letter ? cell.letter_of : cell.dots_of;
      text += colours && of >= 0 ? fmt::format("\x1b[{}m{}\x1b[0m", kColours[size_t(of) % std::size(kColours)], shown) : shown;
    }
    return text;
  }

 private:
  using Place = std::pair<double, double>;

  size_t column_of(double x) const { return size_t(std::lround(x_.place(x))) / kDotColumns; }
  // Rows are counted from the top.
  size_t row_of(double y) const { return size_t(std::lround(double(y_.dots - 1) - y_.place(y))) / kDotRows; }
  Cell& at(size_t column, size_t row) { return cells_[row * columns_ + column]; }

  void join(const Place& from, const Place& to, int number) {
    const double x0 = x_.place(from.first), x1 = x_.place(to.first);
    const double y0 = y_.place(from.second), y1 = y_.place(to.second);
    const auto steps = size_t(std::ceil(std::max(std::abs(x1 - x0), std::abs(y1 - y0))));
    for (size_t i = 0; i <= steps; ++i) {
      const double part = steps == 0 ? 0 : double(i) / double(steps);
      const auto x = size_t(std::lround(x0 + part * (x1 - x0)));
      const auto y = y_.dots - 1 - size_t(std::lround(y0 + part * (y1 - y0)));
      auto& cell = at(x / kDotColumns, y / kDotRows);
      cell.dots |= kDots[y % kDotRows][x % kDotColumns];
      cell.dots_of = number;
    }
  }

  size_t columns_;
  std::vector<Cell> cells_;
  Scale x_, y_;
};

std::string padded(const std::string& text, size_t width) {
  const auto used = display_width(text);
  return std::string(width > used ? width - used : 0, ' ') + text;
}

// The legend in rows that are about as wide as the chart.
void append_legend(std::vector<std::string>& rows, const std::vector<ChartLine>& lines, size_t width, bool colours) {
  std::string row;
  size_t used = 0;
  const auto add = [&](const std::string& text, int colour) {
    const auto needs = display_width(text) + (row.empty() ? 0 : 2);
    if (!row.empty() && used + needs > width) {
      rows.push_back(row);
      row.clear();
      used = 0;
    }
    used += needs;
    row += (row.empty() ? "" : "  ") + (colours && colour >= 0 ? fmt::format("\x1b[{}m{}\x1b[0m", colour, text) : text);
  };
  const auto drawn = std::min(lines.size(), kMaxLines);
  for (size_t i = 0; i < drawn; ++i)
    add(fmt::format("{} {}", char('a' + int(i)), safe_text(lines[i].name)), kColours[i % std::size(kColours)]);
  if (lines.size() > drawn) add(fmt::format("and {} more, which are not drawn", lines.size() - drawn), -1);
  rows.push_back(row);
}

}  // namespace

std::vector<std::string> log_chart(const std::vector<ChartLine>& lines, const ChartOptions& options) {
  const auto drawn = std::min(lines.size(), kMaxLines);
  Scale x, y;
  for (size_t i = 0; i < drawn; ++i)
    for (const auto& [place, value] : lines[i].points) {
      x.include(place);
      y.include(value);
    }
  if (x.low > x.high) return {};
  Area area(options.columns, options.rows, x, y);
  for (size_t i = 0; i < drawn; ++i) area.draw(lines[i], int(i));

  const auto high = options.y_text(std::exp(y.high)), low = options.y_text(std::exp(y.low));
  const auto margin = std::max(display_width(high), display_width(low));
  std::vector<std::string> rows = {safe_text(options.title)};
  for (size_t row = 0; row < options.rows; ++row) {
    const auto label = row == 0 ? high : row + 1 == options.rows ? low : std::string();
    rows.push_back(padded(label, margin) + " │" + area.row(row, options.colours));
  }
  std::string axis;
  for (size_t column = 0; column < options.columns; ++column) axis += "─";
  rows.push_back(std::string(margin, ' ') + " └" + axis);
  const auto first = options.x_text(std::exp(x.low)), last = options.x_text(std::exp(x.high));
  const auto space = options.columns > display_width(first) + display_width(last)
                         ? options.columns - display_width(first) - display_width(last)
                         : 1;
  rows.push_back(std::string(margin + 2, ' ') + first + std::string(space, ' ') + last);
  append_legend(rows, lines, margin + 2 + options.columns, options.colours);
  return rows;
}

}  // namespace attnbench
