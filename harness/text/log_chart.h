// A small chart with logarithmic axes, made of text.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace attnbench {

// The points of one line of a chart: places and values, all finite and above zero, by ascending place.
struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

// More lines than these cover each other, and cannot be told apart.
inline constexpr size_t kMaxChartLines = 8;

struct ChartOptions {
  std::vector<std::string> title;  // its lines
  // How places (as ASCII text) and values are written at the axes.
  std::function<std::string(double)> x_text, y_text;
  // Of the area of the points, in characters; at least 2 each. The labels of the vertical axis lie to the left of it.
  size_t columns = 48, rows = 13;
  bool colours = false;  // each line has a colour of its own, in the escape codes of terminals
};

// The rows of text of the chart: the title, the area of the points with its axes, and the legend. Each point is the letter of its
// line, a `+` stands for points of several lines, and dots of Braille characters join the points of a line. The vertical axis has
// labels at its ends, which differ by a factor of 4 or more, and at powers of ten between them. The horizontal axis has labels at
// its ends and at as many other places of points as fit. Titles and names are made safe for terminals; lines of the title are
// wrapped and names are shortened, so that no row is wider than the area with its axis.
//
// Lines without points are left out. Of more than kMaxChartLines lines, those are drawn that differ most: they are sorted by
// value divided by place at their last points, and taken at equal distances in that order. The legend names the others. The
// result is empty if no line has a point.
std::vector<std::string> log_chart(const std::vector<ChartLine>& lines, const ChartOptions& options);

}  // namespace attnbench
