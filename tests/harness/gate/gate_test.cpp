// Tests of the gate's procedure on made-up measurements.
#include "harness/gate/gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>

#include "harness/text/errors.h"
#include "tests/harness/gate/drawn_pairs.h"
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

TEST(TestPairs, EachHypothesisHasItsOwnBound) {
  Ratios draw(1);
  const double smallest = std::ldexp(1, -12);
  const auto equal = test_pairs(draw.around(1, 0.005, 12)), slower = test_pairs(draw.around(1.06, 0.005, 12)),
             much_slower = test_pairs(draw.around(1.14, 0.005, 12)), faster = test_pairs(draw.around(0.9, 0.005, 12));
  EXPECT_EQ(equal.slower_p, 1);
  EXPECT_EQ(equal.faster_p, 1);
  EXPECT_EQ(equal.margin_p, smallest);
  EXPECT_EQ(slower.slower_p, smallest) << "6 % is more than min_shift";
  EXPECT_EQ(slower.margin_p, smallest) << "6 % is less than margin";
  EXPECT_NEAR(slower.ratio.estimate, std::log(1.06), 0.005);
  EXPECT_EQ(much_slower.slower_p, smallest);
  EXPECT_EQ(much_slower.margin_p, 1);
  EXPECT_EQ(faster.slower_p, 1);
  EXPECT_EQ(faster.faster_p, smallest);
  EXPECT_EQ(test_pairs(draw.around(1.015, 0.002, 12)).slower_p, 1) << "slower by less than min_shift";
  EXPECT_EQ(test_pairs({}).slower_p, 1);
  EXPECT_EQ(test_pairs({}).margin_p, 1);
}

TEST(TestPairs, PairsToRejectAreTheFewestWhosePValueIsSmallEnough) {
  EXPECT_EQ(pairs_to_reject(1, 0.01), 7) << "2^-7 = 0.0078";
  EXPECT_EQ(pairs_to_reject(2, 0.01), 8);
  EXPECT_EQ(pairs_to_reject(20, 0.005), 12) << "20 / 2^12 = 0.00488";
  EXPECT_EQ(pairs_to_reject(21, 0.005), 13);
  EXPECT_EQ(pairs_to_reject(1, 0.25), 3) << "a p value that equals the level does not reject";
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

TEST(Gate, ACaseWithTooFewPairsForALookStaysUndecided) {
  Ratios draw(3);
  Gate gate(2, {});
  gate.look({draw.around(1, 0.01, 8), draw.around(1, 0.01, 7)});
  EXPECT_EQ(gate.judgements()[0].verdict, Verdict::pass);
  EXPECT_EQ(gate.judgements()[1].verdict, Verdict::inconclusive);
}

// The verdict on one case at a single look.
Verdict verdict_on(const std::vector<double>& pairs, GatePlan plan = {}) {
  plan.looks = {int(pairs.size())};
  Gate gate(1, plan);
  gate.look({pairs});
  return gate.judgements()[0].verdict;
}

TEST(Gate, TellsRegressionsImprovementsAndEqualTimesApart) {
  Ratios draw(1);
  EXPECT_EQ(verdict_on(draw.around(1, 0.01, 12)), Verdict::pass);
  EXPECT_EQ(verdict_on(draw.around(1.1, 0.01, 12)), Verdict::regression);
  EXPECT_EQ(verdict_on(draw.around(0.9, 0.01, 12)), Verdict::improvement);
  EXPECT_EQ(verdict_on(draw.around(1.015, 0.002, 12)), Verdict::pass) << "slower without doubt, but by less than min_shift";
  EXPECT_EQ(verdict_on(draw.around(1.2, 1, 12)), Verdict::inconclusive) << "too noisy";
}

// Nine pairs are slower by 4 %, three by 1 %. They differ significantly from zero, but not from 3 %.
TEST(Gate, AnEstimateAboveMinShiftIsNoRegressionUnlessItIsSignificantlyAbove) {
  std::vector<double> pairs;
  for (int i = 0; i < 9; ++i) pairs.push_back(std::log(1.04) + 1e-5 * i);
  for (int i = 0; i < 3; ++i) pairs.push_back(std::log(1.01) + 1e-5 * i);
  EXPECT_LT(signed_rank_p(pairs), 0.001);
  EXPECT_GT(paired_log_ratio(pairs).estimate, std::log(1.039));
  EXPECT_EQ(verdict_on(pairs), Verdict::pass);
}

// A case that seems slower by more than min_shift must not pass at an early look, because a later look can find the slowdown.
TEST(Gate, ASlowdownWithinTheMarginDoesNotPassAtAnEarlyLook) {
  Ratios draw(6);
  const auto pairs = draw.around(1.06, 0.005, 20);
  Gate gate(1, {});
  gate.look({first(pairs, 8)});
  EXPECT_DOUBLE_EQ(gate.judgements()[0].margin_p, 3 * std::ldexp(1, -8)) << "3 looks; the margin is excluded";
  EXPECT_EQ(gate.judgements()[0].slower_p, 1) << "the first look has no share of alpha";
  EXPECT_EQ(gate.judgements()[0].verdict, Verdict::inconclusive);
  gate.look({first(pairs, 12)});
  EXPECT_EQ(gate.judgements()[0].verdict, Verdict::regression);
  // At the last look such a case passes if its slowdown is not significant and within the margin.
  GatePlan strict;
  strict.criteria.alpha = 0.001;
  strict.looks = {10};
  Gate once(1, strict);
  auto mixed = draw.around(1.06, 0.001, 10);
  mixed[0] = std::log(1.02);
  once.look({mixed});
  EXPECT_EQ(once.judgements()[0].verdict, Verdict::pass);
}

TEST(Gate, RefusesLooksAndLevelsThatCannotDecide) {
  const auto message = [](size_t cases, GatePlan plan) { return message_of<UsageError>([&] { Gate(cases, plan); }); };
  EXPECT_CONTAINS(message(1, {{}, 0.025, {8, 8}}), "ascending");
  EXPECT_CONTAINS(message(1, {{}, 0.025, {}}), "ascending");
  EXPECT_CONTAINS(message(1, {{}, 0.025, {4, 8}}), "no case can pass after 4 pairs");
  EXPECT_CONTAINS(message(1, {{}, 0.025, {4, 8}}), "at least 7 pairs");
  EXPECT_CONTAINS(message(3, {{}, 0.025, {8}}), "after 8 pairs none of 3 cases can be found slower");
  EXPECT_CONTAINS(message(3, {{}, 0.025, {8}}), "at least 9 pairs");
  EXPECT_NO_THROW(Gate(2, {{}, 0.025, {8}}));
  EXPECT_CONTAINS(message(1, {{}, 0}), "--pass-alpha is 0");
  EXPECT_CONTAINS(message(1, {{.alpha = 0}}), "--alpha is 0");
}

// If all 12 pairs are above min_shift, p = 1/2¹² = 2.44e-4. The significance level is divided among the cases, and among the
// looks that can reject with their share.
TEST(Gate, TheSignificanceLevelIsDividedAmongCasesAndLooks) {
  const auto is_regression = [](size_t cases, const std::vector<int>& looks) {
    Ratios draw(7);
    std::vector<std::vector<double>> pairs(cases, draw.around(1, 0.4, 12));
    pairs[0] = draw.around(1.2, 0.001, 12);
    Gate gate(cases, {{}, 0.025, looks});
    for (auto look = looks.begin(); *look < 12; ++look) {
      auto seen = pairs;
      for (auto& values : seen) values.resize(size_t(*look));
      gate.look(seen);
    }
    gate.look(pairs);
    return gate.judgements()[0].verdict == Verdict::regression;
  };
  EXPECT_TRUE(is_regression(20, {8, 12, 20})) << "20 × 2.44e-4 < 0.01 / 2";
  EXPECT_FALSE(is_regression(21, {8, 12, 20})) << "only the last look has a share";
  EXPECT_TRUE(is_regression(13, {8, 12, 16, 20}));
  EXPECT_FALSE(is_regression(14, {8, 12, 16, 20})) << "12 pairs cannot reject with a third of the level";
  EXPECT_TRUE(is_regression(40, {8, 12})) << "a single look that can reject has the whole level";
  EXPECT_TRUE(is_regression(13, {12, 16, 20}));
}

// A case that was found slower at one look no longer counts at the next, and a case that passed still does.
TEST(Gate, HolmsProcedureCountsTheCasesThatAreNotYetFoundSlower) {
  Ratios draw(8);
  Gate gate(3, {{}, 0.025, {8, 12, 20}});
  const auto slow = draw.around(1.2, 0.001, 20), wild = draw.around(1, 2, 8), equal = draw.around(1, 0.01, 8);
  gate.look({first(slow, 8), wild, equal});
  EXPECT_EQ(gate.judgements()[2].verdict, Verdict::pass);
  gate.look({first(slow, 12), draw.around(1, 2, 12), {}});
  EXPECT_EQ(gate.judgements()[0].verdict, Verdict::regression);
  EXPECT_DOUBLE_EQ(gate.judgements()[0].slower_p, 3 * 2 * std::ldexp(1, -12)) << "3 cases, 2 looks that share alpha";
  gate.look({{}, slow, {}});
  EXPECT_DOUBLE_EQ(gate.judgements()[1].slower_p, 2 * 2 * std::ldexp(1, -20)) << "2 cases are left in Holm's procedure";
}

// ------------------------------------------------------------ the levels, by simulation

struct Outcome {
  double any_regression = 0;  // share of the suites with any regression
  double pass = 0;            // share of the cases that passed, improvements included
};
// Runs the gate on suites of new draws, in which each case is slower by `slowdown`.
Outcome simulate(size_t cases, double slowdown, const Noise& noise, int trials) {
  std::mt19937_64 random(20260301);
  const GatePlan plan;
  Outcome outcome;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<std::vector<double>> pairs(cases);
    Gate gate(cases, plan);
    while (!gate.has_ended()) {
      for (auto& values : pairs)
        while (values.size() < size_t(gate.next_look())) values.push_back(std::log1p(slowdown) + noise(random));
      gate.look(pairs);
    }
    bool any_regression = false;
    for (const auto& judgement : gate.judgements()) {
      any_regression = any_regression || judgement.verdict == Verdict::regression;
      if (judgement.verdict == Verdict::pass || judgement.verdict == Verdict::improvement)
        outcome.pass += 1.0 / double(cases) / trials;
    }
    outcome.any_regression += any_regression ? 1.0 / trials : 0;
  }
  return outcome;
}
TEST(GateLevels, FalseAlarmsAtTheEdgeOfTheNullHypothesisStayBelowAlpha) {
  for (const auto& [name, noise] : noises())
    for (const auto& [cases, trials] : {std::pair(size_t{6}, 3000), std::pair(size_t{30}, 800)})
      EXPECT_LE(simulate(cases, 0.03, noise, trials).any_regression, highest_likely(0.01, trials)) << name << ", " << cases;
}

TEST(GateLevels, ACaseThatIsSlowerByTheMarginPassesAsRarelyAsStated) {
  for (const auto& [name, noise] : noises())
    for (const auto& [cases, trials] : {std::pair(size_t{6}, 600), std::pair(size_t{30}, 120)})
      EXPECT_LE(simulate(cases, 0.10, noise, trials).pass, highest_likely(0.025, trials * int(cases))) << name << ", " << cases;
}

}  // namespace
}  // namespace attnbench
