// The gate's procedure on sides that were made up.
#include "harness/driver/gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "harness/driver/errors.h"
#include "tests/errors_of.h"

namespace attnbench {
namespace {

class Medians {
 public:
  explicit Medians(uint64_t seed) : random_(seed) {}
  std::vector<double> around(double middle, double noise, int count) {
    std::vector<double> values;
    for (int i = 0; i < count; ++i) values.push_back(middle * std::exp(std::normal_distribution<double>(0, noise)(random_)));
    return values;
  }

 private:
  std::mt19937_64 random_;
};

TEST(Judge, TellsSlowerFromFasterFromTheSame) {
  Medians draw(1);
  const auto same = draw.around(10, 0.01, 12);
  const auto judged = judge({{same, draw.around(10, 0.01, 12)},
                             {same, draw.around(11, 0.01, 12)},
                             {same, draw.around(9, 0.01, 12)},
                             {same, draw.around(10.15, 0.002, 12)},
                             {draw.around(10, 0.5, 12), draw.around(10, 0.5, 12)},
                             {{10}, {20}},
                             {{}, {1}}});
  EXPECT_EQ(judged[0].verdict, Verdict::pass);
  EXPECT_EQ(judged[1].verdict, Verdict::regression);
  EXPECT_NEAR(judged[1].ratio.estimate, std::log(1.1), 0.02);
  EXPECT_LT(judged[1].adjusted_p, 0.01);
  EXPECT_GE(judged[1].adjusted_p, judged[1].p);
  EXPECT_EQ(judged[2].verdict, Verdict::improvement);
  EXPECT_EQ(judged[3].verdict, Verdict::pass) << "surely slower, but by less than matters";
  EXPECT_EQ(judged[4].verdict, Verdict::inconclusive) << "too noisy";
  EXPECT_EQ(judged[5].verdict, Verdict::inconclusive) << "one process tells nothing";
  EXPECT_EQ(judged[6].verdict, Verdict::inconclusive);
  EXPECT_EQ(over_all(judged), Verdict::regression);
  EXPECT_EQ(over_all({judged[0], judged[4]}), Verdict::inconclusive);
  EXPECT_EQ(over_all({judged[0], judged[2]}), Verdict::improvement);
  EXPECT_EQ(over_all({judged[0]}), Verdict::pass);
}

TEST(Judge, MoreCasesAskForMore) {
  Medians draw(2);
  std::vector<TwoSides> cases(60);
  for (auto& c : cases) c = {draw.around(10, 0.03, 8), draw.around(10, 0.03, 8)};
  cases[0] = {{1, 2, 3, 4, 5, 6, 7, 8}, {11, 12, 13, 14, 15, 16, 17, 18}};
  EXPECT_EQ(judge({cases[0]})[0].verdict, Verdict::regression);
  const auto judged = judge(cases);
  EXPECT_NEAR(judged[0].adjusted_p, 60 * judged[0].p, 1e-12) << "the smallest p of 8 against 8, once for each case";
  EXPECT_EQ(judged[0].verdict, Verdict::regression);
}

TEST(Gate, EndsAsSoonAsItsCasesAreDecided) {
  Medians draw(3);
  Gate gate(2, {});
  EXPECT_EQ(gate.next_look(), 8);
  EXPECT_EQ(gate.open(), (std::vector<size_t>{0, 1}));
  const auto wild = [](int count) {
    std::vector<double> values;
    for (int i = 0; i < count; ++i) values.push_back(10 * std::exp(2 * std::sin(2.4 * i)));
    return values;
  };
  gate.look({{draw.around(10, 0.01, 8), draw.around(10, 0.01, 8)}, {wild(8), wild(8)}});
  EXPECT_EQ(gate.judgements()[0].verdict, Verdict::pass);
  EXPECT_EQ(gate.open(), std::vector<size_t>{1}) << "the noisy one goes on";
  EXPECT_EQ(gate.next_look(), 16);
  // What is decided stays so, whatever is said of it later.
  gate.look({{{}, {}}, {wild(16), wild(16)}});
  EXPECT_EQ(gate.judgements()[0].verdict, Verdict::pass);
  gate.look({{{}, {}}, {draw.around(10, 0.001, 24), draw.around(12, 0.001, 24)}});
  EXPECT_TRUE(gate.ended());
  EXPECT_EQ(gate.judgements()[1].verdict, Verdict::regression);
}

TEST(Gate, RefusesTooFewProcesses) {
  EXPECT_CONTAINS(message_of<UsageError>([] { Gate(1, {{}, {4, 8}}); }), "8 at the least");
  EXPECT_CONTAINS(message_of<UsageError>([] { Gate(1, {{}, {8, 8}}); }), "ascending");
  EXPECT_CONTAINS(message_of<UsageError>([] { Gate(1, {{}, {}}); }), "ascending");
}

// The level is that of the whole suite and of all looks together.
TEST(GateErrorRates, FalseAlarmsStayBelowTheLevel) {
  Medians draw(4);
  std::vector<std::vector<double>> pools;
  for (int i = 0; i < 6; ++i) pools.push_back(draw.around(10, 0.05, 400));
  GatePlan plan;
  plan.criteria.min_shift = 0;  // every sure difference counts
  const auto rates = resample_gate(pools, pools, /*same=*/true, plan, 1500, 1);
  EXPECT_LE(rates.any_regression, 0.012);
  EXPECT_EQ(rates.trials, 1500);
  EXPECT_GE(rates.mean_processes, 8);
  EXPECT_LE(rates.mean_processes, 24);
}

TEST(GateErrorRates, ASlowdownIsCaughtUnlessTheNoiseHidesIt) {
  Medians draw(5);
  const std::vector<std::vector<double>> quiet = {draw.around(10, 0.03, 200)}, slower = {draw.around(11, 0.03, 200)},
                                         noisy = {draw.around(10, 0.5, 200)}, noisier = {draw.around(11, 0.5, 200)};
  EXPECT_GE(resample_gate(quiet, slower, false, {}, 500, 1).regression[0], 0.99);
  const auto hidden = resample_gate(noisy, noisier, false, {}, 500, 1);
  EXPECT_LE(hidden.regression[0], 0.1);
  EXPECT_GE(hidden.inconclusive[0], 0.8) << "and is not passed";
  EXPECT_EQ(resample_gate(quiet, slower, false, {}, 200, 7).regression[0],
            resample_gate(quiet, slower, false, {}, 200, 7).regression[0]);
}

TEST(GateErrorRates, NeedsEnoughRecordings) {
  const std::vector<std::vector<double>> few = {std::vector<double>(30, 1.0)};
  EXPECT_CONTAINS(message_of<UsageError>([&] { resample_gate(few, few, true, {}, 1, 1); }), "more recordings than 30");
}

}  // namespace
}  // namespace attnbench
