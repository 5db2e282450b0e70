// Tests of the gate's procedure on made-up measurements.
#include "harness/gate/gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "harness/text/errors.h"
#include "tests/support/errors_of.h"

namespace attnbench {
namespace {

// Draws the median times of processes, in ms: `middle` multiplied by log-normal noise.
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

TEST(Judge, TellsRegressionsImprovementsAndEqualTimesApart) {
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
  EXPECT_EQ(judged[3].verdict, Verdict::pass) << "significantly slower, but by less than min_shift";
  EXPECT_EQ(judged[4].verdict, Verdict::inconclusive) << "too noisy";
  EXPECT_EQ(judged[5].verdict, Verdict::inconclusive) << "one process is not enough";
  EXPECT_EQ(judged[6].verdict, Verdict::inconclusive);
  EXPECT_EQ(overall_verdict(judged), Verdict::regression);
  EXPECT_EQ(overall_verdict({judged[0], judged[4]}), Verdict::inconclusive);
  EXPECT_EQ(overall_verdict({judged[0], judged[2]}), Verdict::improvement);
  EXPECT_EQ(overall_verdict({judged[0]}), Verdict::pass);
}

TEST(Judge, PIsAdjustedForTheNumberOfCases) {
  Medians draw(2);
  std::vector<TwoSides> cases(60);
  for (auto& c : cases) c = {draw.around(10, 0.03, 8), draw.around(10, 0.03, 8)};
  cases[0] = {{1, 2, 3, 4, 5, 6, 7, 8}, {11, 12, 13, 14, 15, 16, 17, 18}};
  EXPECT_EQ(judge({cases[0]})[0].verdict, Verdict::regression);
  const auto judged = judge(cases);
  EXPECT_NEAR(judged[0].adjusted_p, 60 * judged[0].p, 1e-12)
      << "the smallest possible p of 8 against 8 values, multiplied by the number of cases";
  EXPECT_EQ(judged[0].verdict, Verdict::regression);
}

// The first `count` of the values.
std::vector<double> first(std::vector<double> values, size_t count) {
  values.resize(count);
  return values;
}

// Draws the log ratios of pairs of processes: the logarithm of `ratio` plus normal noise.
class Ratios {
 public:
  explicit Ratios(uint64_t seed) : random_(seed) {}
  std::vector<double> around(double ratio, double noise, int count) {
    std::vector<double> values;
    for (int i = 0; i < count; ++i) values.push_back(std::log(ratio) + std::normal_distribution<double>(0, noise)(random_));
    return values;
  }

 private:
  std::mt19937_64 random_;
};

TEST(JudgePairs, TellsRegressionsImprovementsAndEqualTimesApart) {
  Ratios draw(1);
  const auto judged = judge_pairs({draw.around(1, 0.01, 12),
                                   draw.around(1.1, 0.01, 12),
                                   draw.around(0.9, 0.01, 12),
                                   draw.around(1.015, 0.002, 12),
                                   draw.around(1.2, 1, 12),
                                   {std::log(2)},
                                   {}});
  EXPECT_EQ(judged[0].verdict, Verdict::pass);
  EXPECT_EQ(judged[1].verdict, Verdict::regression);
  EXPECT_NEAR(judged[1].ratio.estimate, std::log(1.1), 0.01);
  EXPECT_EQ(judged[1].p, 2 / std::pow(2.0, 12));
  EXPECT_NEAR(judged[1].adjusted_p, 7 * judged[1].p, 1e-12);
  EXPECT_EQ(judged[2].verdict, Verdict::improvement);
  EXPECT_EQ(judged[3].verdict, Verdict::pass) << "significantly slower, but by less than min_shift";
  EXPECT_EQ(judged[4].verdict, Verdict::inconclusive) << "too noisy";
  EXPECT_EQ(judged[5].verdict, Verdict::inconclusive) << "one pair is not enough";
  EXPECT_EQ(judged[6].verdict, Verdict::inconclusive);
}

TEST(Gate, EndsAsSoonAsEveryCaseIsDecided) {
  Ratios draw(3);
  Gate gate(2, {});
  EXPECT_EQ(gate.next_look(), 8);
  EXPECT_EQ(gate.undecided(), (std::vector<size_t>{0, 1}));
  std::vector<double> wild(20);
  for (size_t i = 0; i < wild.size(); ++i) wild[i] = 2 * std::sin(2.4 * double(i));
  gate.look({draw.around(1, 0.01, 8), first(wild, 8)});
  EXPECT_EQ(gate.judgements()[0].verdict, Verdict::pass);
  EXPECT_EQ(gate.undecided(), std::vector<size_t>{1}) << "the noisy case is measured further";
  EXPECT_EQ(gate.next_look(), 12);
  // A decided case keeps its verdict, although this look has no observations of it.
  gate.look({{}, first(wild, 12)});
  EXPECT_EQ(gate.judgements()[0].verdict, Verdict::pass);
  gate.look({{}, draw.around(1.2, 0.001, 20)});
  EXPECT_TRUE(gate.has_ended());
  EXPECT_EQ(gate.judgements()[1].verdict, Verdict::regression);
}

// 8 pairs are too few for a significant difference when there are three looks. A case that is slower by less than the margin must
// not pass at the first look, because a later look can find the slowdown.
TEST(Gate, ASlowdownWithinTheMarginDoesNotPassAtAnEarlyLook) {
  Ratios draw(6);
  const auto pairs = draw.around(1.06, 0.005, 20);
  Gate gate(1, {});
  gate.look({first(pairs, 8)});
  EXPECT_EQ(gate.judgements()[0].verdict, Verdict::inconclusive);
  gate.look({first(pairs, 12)});
  EXPECT_EQ(gate.judgements()[0].verdict, Verdict::regression);
  // At the last look such a case passes if its slowdown is not significant and within the margin.
  Gate once(1, {{}, {8}});
  once.look({draw.around(1.06, 0.005, 7)});
  EXPECT_EQ(once.judgements()[0].verdict, Verdict::pass);
}

TEST(Gate, RefusesLooksThatAreTooEarlyOrNotAscending) {
  EXPECT_CONTAINS(message_of<UsageError>([] { Gate(1, {{}, {4, 8}}); }), "at least 8");
  EXPECT_CONTAINS(message_of<UsageError>([] { Gate(1, {{}, {8, 8}}); }), "ascending");
  EXPECT_CONTAINS(message_of<UsageError>([] { Gate(1, {{}, {}}); }), "ascending");
}

// If all 12 pairs have one sign, p = 2/2¹² = 4.88e-4. The significance level is divided among the cases, and among all looks but
// the first.
TEST(Gate, TheSignificanceLevelIsDividedAmongCasesAndLooks) {
  const auto is_regression = [](size_t cases, const std::vector<int>& looks) {
    Ratios draw(7);
    std::vector<std::vector<double>> pairs(cases, draw.around(1, 0.4, 12));
    pairs[0] = draw.around(1.2, 0.001, 12);
    Gate gate(cases, {{}, looks});
    for (auto look = looks.begin(); *look < 12; ++look) {
      auto seen = pairs;
      for (auto& values : seen) values.resize(size_t(*look));
      gate.look(seen);
    }
    gate.look(pairs);
    return gate.judgements()[0].verdict == Verdict::regression;
  };
  EXPECT_TRUE(is_regression(10, {8, 12, 20})) << "10 × 4.88e-4 < 0.01 / 2";
  EXPECT_FALSE(is_regression(11, {8, 12, 20}));
  EXPECT_FALSE(is_regression(10, {8, 12, 16, 20}));
  EXPECT_TRUE(is_regression(20, {8, 12}));
  EXPECT_FALSE(is_regression(21, {8, 12}));
  EXPECT_TRUE(is_regression(20, {12})) << "a single look has the whole level";
  EXPECT_FALSE(is_regression(1, {12, 20})) << "the first of several looks can only let cases pass";
}

TEST(GateErrorRates, FalseAlarmsStayBelowTheSignificanceLevel) {
  Ratios draw(4);
  std::vector<std::vector<double>> pools;
  for (int i = 0; i < 6; ++i) pools.push_back(draw.around(1, 0.05, 400));
  GatePlan plan;
  plan.criteria.min_shift = 0;  // every significant difference counts
  const auto rates = resample_gate(pools, plan, 1500, 1);
  EXPECT_LE(rates.any_regression, 0.012);
  EXPECT_EQ(rates.trials, 1500);
  EXPECT_GE(rates.mean_pairs, 8);
  EXPECT_LE(rates.mean_pairs, 20);
}

TEST(GateErrorRates, ASlowdownIsFoundAndIsInconclusiveWhenTheNoiseHidesIt) {
  Ratios draw(5);
  const std::vector<std::vector<double>> slower = {draw.around(1.1, 0.03, 200)}, noisy = {draw.around(1.1, 0.8, 200)};
  EXPECT_GE(resample_gate(slower, {}, 500, 1).regression[0], 0.97);
  const auto hidden = resample_gate(noisy, {}, 500, 1);
  EXPECT_LE(hidden.regression[0], 0.1);
  EXPECT_GE(hidden.inconclusive[0], 0.8) << "a slowdown that the noise hides does not pass";
  EXPECT_EQ(resample_gate(noisy, {}, 200, 7).regression[0], resample_gate(noisy, {}, 200, 7).regression[0]);
}

TEST(GateErrorRates, TooFewRecordingsAreRefused) {
  EXPECT_CONTAINS(message_of<UsageError>([&] { resample_gate({std::vector<double>(10, 0.0)}, {}, 1, 1); }),
                  "10 recordings, expected at least 20");
}

}  // namespace
}  // namespace attnbench
