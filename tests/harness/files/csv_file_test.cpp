// Tests of reading files of comma-separated values. Those of the format are beside text/csv.h.
#include "harness/files/csv_file.h"

#include <gtest/gtest.h>

#include "harness/text/errors.h"
#include "tests/support/errors_of.h"
#include "tests/support/temp_folder.h"

namespace attnbench {
namespace {

TEST(CsvFile, RowsAreReadFromTheFile) {
  const TempFolder folder;
  const auto rows = read_csv(folder.write("x.csv", "a,b\n1,2\n"));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].cells, (std::vector<std::string>{"1", "2"}));
}

TEST(CsvFile, ErrorsNameTheFile) {
  const TempFolder folder;
  const auto open = folder.write("x.csv", "a,b\n1,\"2\n3,4\n");
  EXPECT_EQ(message_of<UsageError>([&] { read_csv(open); }), open + ":2: a quote is not closed");
  EXPECT_EQ(message_of<UsageError>([&] { read_csv(folder.path("none.csv")); }),
            folder.path("none.csv") + ": cannot open: No such file or directory");
}

}  // namespace
}  // namespace attnbench
