// Tests of values published elsewhere: which cases a row of the file applies to, and which files are refused.
#include "harness/records/published.h"

#include <gtest/gtest.h>

#include "harness/text/errors.h"
#include "tests/support/errors_of.h"
#include "tests/support/temp_folder.h"

namespace attnbench {
namespace {

Record record_of(const std::string& method, int64_t query_len, bool causal = false) {
  Case c;
  c.method = method;
  c.query_len = query_len;
  c.causal = causal;
  c.complete();
  return Record(c);
}

// The message of the error that a file with this text leads to, without the path of the file.
std::string refusal(const std::string& text) {
  const TempFolder folder;
  const auto path = folder.write("p.csv", text);
  auto message = message_of<UsageError>([&] { Published published(path); });
  EXPECT_TRUE(message.starts_with(path)) << message;
  return message.substr(std::min(path.size(), message.size()));
}

TEST(Published, ARowAppliesToEveryCaseThatMatchesItsCells) {
  const TempFolder folder;
  const Published published(folder.write("p.csv",
                                         "method,query_len,causal,time_ms,memory_bytes,outcome,source\n"
                                         "softmax,,,,,measured,\"Figure 1, GTX 1080 Ti\"\n"
                                         "softmax,1024,,2.5,1e6,,\n"
                                         "linear,1024,true,7,,,elsewhere\n"));
  auto long_softmax = record_of("softmax", 4096), softmax = record_of("softmax", 1024), linear = record_of("linear", 1024),
       causal = record_of("linear", 1024, true);
  for (auto* record : {&long_softmax, &softmax, &linear, &causal}) published.annotate(*record);
  EXPECT_EQ(long_softmax.text("published_outcome"), "measured");
  EXPECT_EQ(long_softmax.text("published_source"), "Figure 1, GTX 1080 Ti");
  EXPECT_FALSE(long_softmax.has("published_time_ms"));
  EXPECT_EQ(softmax.number("published_time_ms"), 2.5);
  EXPECT_EQ(softmax.number("published_memory_bytes"), 1e6);
  EXPECT_EQ(softmax.text("published_outcome"), "measured");
  EXPECT_FALSE(linear.has("published_time_ms"));
  EXPECT_EQ(causal.number("published_time_ms"), 7);
  EXPECT_EQ(causal.text("published_source"), "elsewhere");
}

TEST(Published, WithoutAFileRecordsAreNotChanged) {
  auto record = record_of("softmax", 1024);
  const auto before = record.to_json();
  Published().annotate(record);
  EXPECT_EQ(record.to_json(), before);
}

TEST(Published, ErrorsNameFileAndLine) {
  EXPECT_EQ(refusal(""), ": empty, expected a row of column names");
  EXPECT_CONTAINS(refusal("method,tme_ms\n"),
                  ":1: unknown column 'tme_ms'; did you mean 'time_ms'?; known: time_ms, memory_bytes, outcome, source, method");
  EXPECT_CONTAINS(refusal("method,deadline_s\n"), ":1: unknown column 'deadline_s'");
  EXPECT_EQ(refusal("method,time_ms\nlinear,3\n\nlinear\n"), ":4: 1 cell, expected 2 as in the first row");
  EXPECT_EQ(refusal("method,time_ms\nlinear,3,4\n"), ":2: 3 cells, expected 2 as in the first row");
  EXPECT_EQ(refusal("method,time_ms\nlinear,3\nlinear,fast\n"), ":3: time_ms = 'fast', expected a number");
  EXPECT_EQ(refusal("method,memory_bytes\nlinear,nan\n"), ":2: memory_bytes = 'nan', expected a number");
  EXPECT_EQ(refusal("method,time_ms\n\"linear,3\n"), ":2: a quote is not closed");
}

}  // namespace
}  // namespace attnbench
