// Tests of the small charts of text.
#include "harness/text/log_chart.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/text/units.h"

namespace attnbench {
namespace {

ChartOptions small(std::vector<std::string> title = {"title"}) {
  const auto text = [](double value) { return fmt::format("{:.0f}", value); };
  return {.title = std::move(title), .x_text = text, .y_text = text, .columns = 20, .rows = 5};
}

std::string text_of(const std::vector<std::string>& rows) {
  std::string text;
  for (const auto& row : rows) text += row + "\n";
  return text;
}

// The legend is what follows the row of the labels of the horizontal axis.
std::vector<std::string> legend_of(const std::vector<std::string>& rows) {
  const auto axis = std::find_if(rows.begin(), rows.end(), [](const auto& row) { return row.find("└") != std::string::npos; });
  return {axis + 2, rows.end()};
}

TEST(LogChart, DrawsLinesWithTheirPointsAndLabels) {
  const std::vector<ChartLine> lines = {{"linear", {{1, 1}, {10, 10}, {100, 100}}},
                                        {"square", {{1, 1}, {10, 100}, {100, 10000}}}};
  EXPECT_EQ(text_of(log_chart(lines, small())),
            "title\n"
            "10000 ┤                ⣀⠤⠒b\n"
            "      │            ⣀⠤⠒⠉\n"
            "  100 ┤       ⢀⡠⠔b⠉   ⣀⣀⠤⠤a\n"
            "      │   ⢀⡠⠔⠊⣁⣀⠤a⠒⠒⠉⠉\n"
            "    1 ┤+⠴⠮⠓⠒⠉⠉\n"
            "      └┬─────────┬────────┬\n"
            "       1        10      100\n"
            "a linear  b square\n"
            "+ several\n");
}

TEST(LogChart, ShowsOnePointInTheMiddle) {
  EXPECT_EQ(text_of(log_chart({{"only", {{64, 8}}}}, small())),
            "title\n"
            "16 ┤\n"
            "   │\n"
            " 8 ┤          a\n"
            "   │\n"
            " 4 ┤\n"
            "   └──────────┬─────────\n"
            "             64\n"
            "a only\n");
}

TEST(LogChart, ShowsEqualValuesAsALevelLine) {
  EXPECT_EQ(text_of(log_chart({{"level", {{1, 8}, {2, 8}, {4, 8}}}}, small())),
            "title\n"
            "16 ┤\n"
            "   │\n"
            " 8 ┤a⠒⠒⠒⠒⠒⠒⠒⠒⠒a⠒⠒⠒⠒⠒⠒⠒⠒a\n"
            "   │\n"
            " 4 ┤\n"
            "   └┬─────────┬────────┬\n"
            "    1         2        4\n"
            "a level\n");
}

TEST(LogChart, DoesNotShowNoiseAsATrend) {
  const auto rows = log_chart({{"noisy", {{1, 100}, {2, 104}, {4, 98}}}}, small());
  EXPECT_EQ(std::count_if(rows.begin() + 1, rows.begin() + 6, [](const auto& row) { return row.find('a') != std::string::npos; }),
            1);
}

TEST(LogChart, IsEmptyWithoutPoints) {
  EXPECT_TRUE(log_chart({}, small()).empty());
  EXPECT_TRUE(log_chart({{"none", {}}}, small()).empty());
  EXPECT_EQ(legend_of(log_chart({{"none", {}}, {"one", {{1, 1}}}}, small())), std::vector<std::string>{"a one"});
}

TEST(LogChart, DrawsTheMostDifferentOfManyLinesAndNamesTheOthers) {
  std::vector<ChartLine> lines;
  for (int i = 0; i < 15; ++i) lines.push_back({fmt::format("m{}", i), {{1, 1.0 + i}, {2, 2.0 + i}}});
  auto wide = small();
  wide.columns = 60;
  EXPECT_EQ(legend_of(log_chart(lines, wide)),
            (std::vector<std::string>{"a m0  b m2  c m4  d m6  e m8  f m10  g m12  h m14  + several",
                                      "not drawn: m1, m3, m5, m7, m9, m11, m13"}));
  lines.resize(kMaxChartLines);
  EXPECT_EQ(text_of(log_chart(lines, wide)).find("not drawn"), std::string::npos);
}

TEST(LogChart, CountsTheColumnsOfWideCharacters) {
  const std::vector<ChartLine> lines = {
      {"注意", {{1, 1}, {2, 4}}}, {"線形注意の長い名前の方法", {{1, 2}, {2, 8}}}, {"café", {{1, 3}}}};
  const auto rows = log_chart(lines, small({"時間 と 長さ の 図表 です"}));
  EXPECT_EQ(legend_of(rows), (std::vector<std::string>{"a 注意", "b 線形注意の長い名前の…", "c café"}));
  EXPECT_EQ(rows[0], "時間 と 長さ の 図表");
  EXPECT_EQ(rows[1], "です");
  for (const auto& row : rows) EXPECT_LE(display_width(row), 23u) << row;
}

TEST(LogChart, HasColoursOnlyIfTheyAreAskedFor) {
  const std::vector<ChartLine> lines = {{"one", {{1, 1}, {2, 4}}}, {"other", {{1, 2}, {2, 8}}}};
  auto options = small();
  const auto plain = text_of(log_chart(lines, options));
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
  options.colours = true;
  auto coloured = text_of(log_chart(lines, options));
  EXPECT_NE(coloured.find("\x1b[36ma one\x1b[0m"), std::string::npos);
  EXPECT_NE(coloured.find("\x1b[33mb other\x1b[0m"), std::string::npos);
  for (const std::string code : {"\x1b[36m", "\x1b[33m", "\x1b[0m"})
    for (size_t at = 0; (at = coloured.find(code)) != std::string::npos;) coloured.erase(at, code.size());
  EXPECT_EQ(coloured, plain);
}

TEST(LogChart, ShowsNoControlCharactersOfNames) {
  const auto text = text_of(log_chart({{"\x1b[2Jbad\nname", {{1, 1}, {2, 4}}}}, small({"a\x1b]0;x\x07title"})));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\x07'), std::string::npos);
  EXPECT_NE(text.find("a  [2Jbad name\n"), std::string::npos);
}

}  // namespace
}  // namespace attnbench
