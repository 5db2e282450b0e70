// Tests of the sentences that say which method is faster.
#include "harness/cli/rendering/answers.h"

#include <gtest/gtest.h>

#include "tests/support/errors_of.h"
#include "tests/support/measured_record.h"

namespace attnbench {
namespace {

class AnswersTest : public testing::Test {
 protected:
  // Adds a record whose processes took about `ms`, with steps of `step` between them.
  Record& add(const std::string& method, int64_t length, double ms, int processes = 8, double step = 1e-4) {
    auto& record = records_.emplace_back(measured_record(method, length, ms));
    if (processes > 1) record.set("process_medians_ms", values_around(ms, processes, step));
    return record;
  }

  std::vector<Record> records_;
};

TEST_F(AnswersTest, NameTheFastestMethodByHowMuchHowSureAndFromWhichLengthOn) {
  for (const int64_t n : {512, 1024, 2048, 4096}) {
    add("sdpa", n, double(n) * double(n) * 1e-5);
    add("linear", n, double(n) * 1e-2);
    add("lsh-1", n, double(n) * 2e-2);
  }
  const auto sentences = speed_answers(records_);
  ASSERT_EQ(sentences.size(), 1u);
  EXPECT_CONTAINS(
      sentences[0],
      "linear is the fastest, 4.10 × as fast as sdpa at N = 4096 (95 %: 4.09 … 4.10), and faster at every measured N from "
      "2048 on, not at 1024. The time grows as N^1.00 for linear and as N^2.00 for sdpa from N = 512 "
      "to 4096.");
}

TEST_F(AnswersTest, SayWhatTheRecordsDoNotShow) {
  add("sdpa", 512, 10);
  add("linear", 512, 10.05);
  EXPECT_CONTAINS(speed_answers(records_)[0], "linear is as fast as sdpa within 3 % at N = 512: 0.995 × as fast (95 %: ");
  records_.clear();
  add("sdpa", 512, 10);
  add("linear", 512, 20);
  EXPECT_EQ(speed_answers(records_)[0], "sdpa is 2.00 × as fast as linear at N = 512 (95 %: 2.00 … 2.00).");
  add("lsh-1", 512, 40);
  EXPECT_EQ(speed_answers(records_)[0],
            "sdpa is the fastest at N = 512; the next, linear, is 0.500 × as fast (95 %: 0.500 … 0.500).");
  records_.clear();
  add("sdpa", 512, 10, 8, 0.1);
  add("linear", 512, 9.5, 8, 0.1);
  EXPECT_CONTAINS(speed_answers(records_)[0],
                  "it is not certain whether linear or sdpa is faster at N = 512: linear is 1.05 × as fast (95 %: ");
  records_.clear();
  EXPECT_TRUE(speed_answers(records_).empty());
  add("sdpa", 512, 10);
  EXPECT_TRUE(speed_answers(records_).empty()) << "there is nothing to compare with";
}

TEST_F(AnswersTest, NameTheMethodsThatMayBeAsFast) {
  add("sdpa", 512, 10);
  add("linear", 512, 5, 8, 0.1);
  add("linear-elu0.1", 512, 5.05, 8, 0.1);
  add("lsh-1", 512, 9);
  EXPECT_CONTAINS(speed_answers(records_)[0], "linear is 2.00 × as fast as sdpa at N = 512 (95 %: ");
  EXPECT_CONTAINS(speed_answers(records_)[0], "It is not certain that linear-elu0.1 is slower.");
}

TEST_F(AnswersTest, SayHowSureFewProcessesAre) {
  add("sdpa", 512, 10, 3);
  add("linear", 512, 5, 3);
  EXPECT_EQ(speed_answers(records_)[0],
            "linear is 2.00 × as fast as sdpa at N = 512 (range 2.00 … 2.00 of 3 processes, too few for a verdict).");
  records_.clear();
  add("sdpa", 512, 10, 1);
  add("linear", 512, 5, 1);
  EXPECT_EQ(speed_answers(records_)[0], "linear is 2.00 × as fast as sdpa at N = 512 (one process, so no interval).");
}

TEST_F(AnswersTest, HaveASentenceForEachSettingUpToTheFirstFew) {
  for (int64_t heads = 1; heads <= 10; ++heads)
    for (const auto* method : {"sdpa", "linear"}) {
      auto& record = add(method, 512, method == std::string("sdpa") ? 10 : 5);
      record.set("heads", heads);
    }
  const auto sentences = speed_answers(records_);
  ASSERT_EQ(sentences.size(), 9u);
  EXPECT_CONTAINS(sentences[0], "heads 1: linear is 2.00 × as fast as sdpa");
  EXPECT_EQ(sentences[8], "There are 2 more settings.");
}

}  // namespace
}  // namespace attnbench
