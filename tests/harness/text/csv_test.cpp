// Tests of comma-separated values: quoting, escaping of formulas, and reading.
#include "harness/text/csv.h"

#include <gtest/gtest.h>

#include "harness/text/errors.h"
#include "tests/support/errors_of.h"

namespace attnbench {
namespace {

TEST(Csv, TextThatASpreadsheetTakesForAFormulaIsEscaped) {
  for (const auto* text : {"=1+1", "+1", "-1", "@SUM(A1)"}) EXPECT_EQ(csv_text(text), std::string("'") + text);
  for (const auto* text : {"\tx", "\rx"}) EXPECT_EQ(csv_text(text), "' x");
  for (const auto* text : {"", "a=b", "linear:chunk=64", "1-2", "aten/chunked"}) EXPECT_EQ(csv_text(text), text);
}

TEST(Csv, CellsWithCommasQuotesAndLineEndsAreQuoted) {
  EXPECT_EQ(csv_row({"a", "", "b c"}), "a,,b c\n");
  EXPECT_EQ(csv_row({"a,b", "say \"x\"", "two\nlines", "\r"}), "\"a,b\",\"say \"\"x\"\"\",\"two\nlines\",\"\r\"\n");
  EXPECT_EQ(csv_row({}), "\n");
}

TEST(Csv, WrittenRowsAreReadBack) {
  const std::vector<std::vector<std::string>> rows = {
      {"plain", "a,b", ""}, {"\"", "\"\"", "two\nlines, \"quoted\""}, {"ä", "–", "=1"}};
  std::string text;
  for (const auto& row : rows) text += csv_row(row);
  const auto read = parse_csv(text, "x.csv");
  ASSERT_EQ(read.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(read[i].cells, rows[i]);
  EXPECT_EQ(read[0].line, 1u);
  EXPECT_EQ(read[1].line, 2u);
  EXPECT_EQ(read[2].line, 4u) << "the row before it has a cell of two lines";
}

TEST(Csv, AByteOrderMarkIsNoPartOfTheFirstCell) {
  EXPECT_EQ(parse_csv("\xEF\xBB\xBFmethod,time\n", "x.csv").at(0).cells.at(0), "method");
}

TEST(Csv, NumbersAreReadAsOtherProgramsWriteThem) {
  EXPECT_EQ(csv_number(".5"), 0.5);
  EXPECT_EQ(csv_number(" +1e-3\t"), 1e-3);
  EXPECT_EQ(csv_number("-2"), -2);
  for (const auto* text : {"", " ", "1,5", "0x10", "nan", "inf", "1e999", "1 2", "+-1", "true", "--1"})
    EXPECT_FALSE(csv_number(text)) << text;
}

TEST(Csv, ReadsBothKindsOfLineEndsAndSkipsEmptyLines) {
  const auto read = parse_csv("a,b\r\n\r\n\n1,2\r\n3,4", "x.csv");
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[0].cells, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read[1].cells, (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(read[1].line, 4u);
  EXPECT_EQ(read[2].cells, (std::vector<std::string>{"3", "4"}));
  EXPECT_TRUE(parse_csv("", "empty.csv").empty());
}

TEST(Csv, ErrorsNameTheFileAndTheLine) {
  EXPECT_EQ(message_of<UsageError>([] { parse_csv("a,b\n1,\"2\n3,4\n", "x.csv"); }), "x.csv:2: a quote is not closed");
}

}  // namespace
}  // namespace attnbench
