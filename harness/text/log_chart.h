// A small chart with logarithmic axes, made of text.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace attnbench {

// The points of one line of a chart: places and values, all above zero.
struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

struct ChartOptions {
  std::string title;
  // How the ends of the axes are written.
  std::function<std::string(double)> x_text, y_text;
  size_t columns = 48, rows = 13;  // of the area of the points, in characters
  bool colours = false;            // each line has a colour of its own
};

// The rows of text of the chart: the title, the area of the points with the labels of its axes, and the legend. Each point is the
// letter of its line, a `+` stands for points of several lines, and dots of Braille characters join the points of a line. Empty
// if no line has a point. At most 26 lines are drawn; the legend says how many are left out.
std::vector<std::string> log_chart(const std::vector<ChartLine>& lines, const ChartOptions& options);

}  // namespace attnbench
