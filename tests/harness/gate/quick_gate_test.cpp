// Tests of the quick gate's procedure on made-up measurements.
#include "harness/gate/quick_gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "harness/text/errors.h"
#include "tests/harness/gate/drawn_pairs.h"
#include "tests/support/errors_of.h"

namespace attnbench {
namespace {

GatePlan quick_plan() {
  GatePlan plan;
  plan.is_quick = true;
  return plan;
}

// A gate on these pairs, from which it has taken as many of each case as it asked for.
struct GateOnPairs {
  std::vector<std::vector<double>> pairs;
  QuickGate gate;
  std::vector<size_t> taken;  // the number of pairs of each case
  int total = 0;

  explicit GateOnPairs(std::vector<std::vector<double>> all, uint64_t seed = 1)
      : pairs(std::move(all)), gate(pairs.size(), quick_plan(), seed), taken(pairs.size(), 0) {}
  // Goes on to the end, or until so many pairs are taken altogether.
  GateOnPairs& go_on(int until = 1000) {
    while (total < until) {
      const auto index = gate.next();
      if (!index) break;
      gate.add(*index, pairs[*index].at(taken[*index]++));
      ++total;
    }
    return *this;
  }
  Verdict verdict(size_t index) const { return gate.judgements()[index].verdict; }
};

std::vector<std::vector<double>> equal_cases(size_t count, double noise = 0.01) {
  Ratios draw(11);
  std::vector<std::vector<double>> cases(count);
  for (auto& pairs : cases) pairs = draw.around(1, noise, 20);
  return cases;
}

TEST(QuickLooks, AreTheFewestPairsThatCanRejectWithTheirShare) {
  const auto looks = [](size_t cases) { return looks_of(cases, quick_plan()); };
  EXPECT_EQ(looks(1), (std::vector<int>{6, 7, 11})) << "2^-6 < 0.8 · 0.025, 2^-7 < 0.8 · 0.01";
  EXPECT_EQ(looks(6), (std::vector<int>{6, 10, 14})) << "6 · 2^-10 < 0.8 · 0.01";
  EXPECT_EQ(looks(100), (std::vector<int>{6, 14, 18}));
  EXPECT_EQ(looks_of(6, {}), (std::vector<int>{8, 12, 20})) << "a full gate has those of the plan";
  auto plan = quick_plan();
  plan.pass_alpha = 0;
  EXPECT_CONTAINS(message_of<UsageError>([&] { quick_looks(1, plan); }), "--pass-alpha is 0");
}

TEST(QuickGate, PassesWithTheFewestPairsThatExcludeTheMargin) {
  GateOnPairs run(equal_cases(6));
  run.go_on();
  EXPECT_EQ(run.taken, std::vector<size_t>(6, 6));
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(run.verdict(i), Verdict::pass);
  EXPECT_DOUBLE_EQ(run.gate.judgements()[0].margin_p, std::ldexp(1, -6) / 0.8);
  EXPECT_EQ(run.gate.judgements()[0].slower_p, 1) << "no look so far could find a case slower";
}

TEST(QuickGate, FollowsTheCaseThatSeemsSlowerAndStopsWhenItIsARegression) {
  auto cases = equal_cases(6);
  cases[3] = Ratios(12).around(1.2, 0.01, 20);
  GateOnPairs run(cases);
  run.go_on();
  EXPECT_EQ(run.verdict(3), Verdict::regression);
  EXPECT_EQ(run.taken[3], 10);
  EXPECT_DOUBLE_EQ(run.gate.judgements()[3].slower_p, 6 * std::ldexp(1, -10) / 0.8);
  EXPECT_LE(run.total, 10 + 5 * 2) << "after two pairs of each case at the latest, only the slower one is measured";
  EXPECT_EQ(run.verdict(0), Verdict::inconclusive);
  EXPECT_NEAR(run.gate.judgements()[3].ratio.estimate, std::log(1.2), 0.01);
}

TEST(QuickGate, ReturnsToTheOthersWhenTheCaseOnlySeemedSlower) {
  auto cases = equal_cases(3);
  cases[1] = first(Ratios(13).around(1, 0.005, 20), 14);
  for (int i = 0; i < 3; ++i) cases[1][size_t(i)] = std::log(1.08);
  GateOnPairs run(cases);
  run.go_on();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(run.verdict(i), Verdict::pass) << i;
}

TEST(QuickGate, AFasterCasePassesAtOnceAndASlowerOneOnlyAtItsLastLook) {
  GateOnPairs faster({Ratios(14).around(0.8, 0.01, 20)}), slower({Ratios(14).around(1.035, 0.008, 20)});
  EXPECT_EQ(faster.go_on().taken[0], 6);
  EXPECT_EQ(faster.verdict(0), Verdict::pass) << "six pairs are too few for an improvement";
  slower.go_on(7);
  EXPECT_LT(slower.gate.judgements()[0].margin_p, 0.025) << "the margin is excluded";
  EXPECT_EQ(slower.verdict(0), Verdict::inconclusive) << "the estimate is above min_shift";
  EXPECT_EQ(slower.go_on().taken[0], 11);
  EXPECT_EQ(slower.verdict(0), Verdict::pass);
}

TEST(QuickGate, ACaseThatIsTooNoisyStaysInconclusiveAfterTheLastLook) {
  std::vector<double> wild;
  for (int i = 0; i < 20; ++i) wild.push_back(2 * std::sin(2.4 * i));
  GateOnPairs run({wild});
  EXPECT_EQ(run.go_on().taken[0], 11);
  EXPECT_EQ(run.verdict(0), Verdict::inconclusive);
}

TEST(QuickGate, ACaseThatMayFailStopsNothing) {
  // The second case passes at its last look only.
  GateOnPairs run({Ratios(15).around(1.3, 0.01, 20), Ratios(14).around(1.035, 0.008, 20)});
  run.gate.let_fail(0);
  run.go_on();
  EXPECT_EQ(run.verdict(0), Verdict::regression);
  EXPECT_EQ(run.verdict(1), Verdict::pass) << "the other case is measured to its end";
  GateOnPairs beside_equal({Ratios(15).around(1.3, 0.01, 20), equal_cases(1)[0]});
  beside_equal.gate.let_fail(0);
  EXPECT_EQ(beside_equal.go_on(8).taken, (std::vector<size_t>{4, 4})) << "the case that may fail is not followed";
}

TEST(QuickGate, ACaseThatIsGivenUpIsNotMeasuredFurther) {
  GateOnPairs run(equal_cases(2));
  run.go_on(3);
  const auto before = run.taken[1];
  run.gate.give_up(1);
  run.go_on();
  EXPECT_EQ(run.taken, (std::vector<size_t>{6, before}));
  EXPECT_EQ(run.verdict(1), Verdict::inconclusive);
}

TEST(QuickGate, TheSeedDecidesTheOrder) {
  const auto order = [](uint64_t seed) {
    QuickGate gate(8, quick_plan(), seed);
    std::vector<size_t> cases;
    for (int i = 0; i < 8; ++i) {
      cases.push_back(gate.next().value());
      gate.add(cases.back(), 0);
    }
    return cases;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

// ------------------------------------------------------------ the levels, by simulation

// The shares of suites with any regression, and of cases that passed, if each case is slower by `slowdown`.
std::pair<double, double> simulate_quick(size_t cases, double slowdown, const Noise& noise, int trials) {
  std::mt19937_64 random(20260302);
  double alarms = 0, passes = 0;
  for (int trial = 0; trial < trials; ++trial) {
    QuickGate gate(cases, quick_plan(), random());
    while (const auto index = gate.next()) gate.add(*index, std::log1p(slowdown) + noise(random));
    bool any = false;
    for (const auto& judgement : gate.judgements()) {
      any = any || judgement.verdict == Verdict::regression;
      if (judgement.verdict == Verdict::pass || judgement.verdict == Verdict::improvement) passes += 1.0 / double(cases) / trials;
    }
    alarms += any ? 1.0 / trials : 0;
  }
  return {alarms, passes};
}

TEST(QuickGateLevels, FalseAlarmsAtTheEdgeOfTheNullHypothesisStayBelowAlpha) {
  for (const auto& [name, noise] : noises())
    for (const auto& [cases, trials] : {std::pair(size_t{1}, 4000), std::pair(size_t{6}, 2000), std::pair(size_t{30}, 400)})
      EXPECT_LE(simulate_quick(cases, 0.03, noise, trials).first, highest_likely(0.01, trials)) << name << ", " << cases;
}

TEST(QuickGateLevels, ACaseThatIsSlowerByTheMarginPassesAsRarelyAsStated) {
  // The gate stops at the first regression, after which no case passes any more; a single case shows the level by itself.
  for (const auto& [name, noise] : noises())
    EXPECT_LE(simulate_quick(1, 0.10, noise, 3000).second, highest_likely(0.025, 3000)) << name;
}

}  // namespace
}  // namespace attnbench
