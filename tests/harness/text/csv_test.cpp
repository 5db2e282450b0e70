// Tests of comma-separated values: quoting, escaping of formulas, and reading.
#include "harness/text/csv.h"

#include <gtest/gtest.h>

#include "harness/text/errors.h"
#include "tests/support/errors_of.h"
#include "tests/support/temp_folder.h"

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
  const TempFolder folder;
  const auto read = read_csv(folder.write("x.csv", text));
  ASSERT_EQ(read.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(read[i].cells, rows[i]);
  EXPECT_EQ(read[0].line, 1u);
  EXPECT_EQ(read[1].line, 2u);
  EXPECT_EQ(read[2].line, 4u) << "the row before it has a cell of two lines";
}

TEST(Csv, AByteOrderMarkIsNoPartOfTheFirstCell) {
  const TempFolder folder;
  EXPECT_EQ(read_csv(folder.write("x.csv", "\xEF\xBB\xBFmethod,time\n")).at(0).cells.at(0), "method");
}

TEST(Csv, NumbersAreReadAsOtherProgramsWriteThem) {
  EXPECT_EQ(csv_number(".5"), 0.5);
  EXPECT_EQ(csv_number(" +1e-3\t"), 1e-3);
  EXPECT_EQ(csv_number("-2"), -2);
  for (const auto* text : {"", " ", "1,5", "0x10", "nan", "inf", "1e999", "1 2", "+-1", "true", "--1"})
    EXPECT_FALSE(csv_number(text)) << text;
}

TEST(Csv, ReadsBothKindsOfLineEndsAndSkipsEmptyLines) {
  const TempFolder folder;
  const auto read = read_csv(folder.write("x.csv", "a,b\r\n\r\n\n1,2\r\n3,4"));
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[0].cells, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read[1].cells, (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(read[1].line, 4u);
  EXPECT_EQ(read[2].cells, (std::vector<std::string>{"3", "4"}));
  EXPECT_TRUE(read_csv(folder.write("empty.csv", "")).empty());
}

TEST(Csv, ErrorsNameTheFileAndTheLine) {
  const TempFolder folder;
  const auto open = folder.write("x.csv", "a,b\n1,\"2\n3,4\n");
  EXPECT_EQ(message_of<UsageError>([&] { read_csv(open); }), open + ":2: a quote is not closed");
  EXPECT_EQ(message_of<UsageError>([&] { read_csv(folder.path("none.csv")); }),
            folder.path("none.csv") + ": cannot open: No such file or directory");
}

}  // namespace
}  // namespace attnbench
