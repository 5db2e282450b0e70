// Plans the looks of a quick gate, and chooses the case that is measured next.
#include "harness/gate/quick_gate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace attnbench {
namespace {

// The shares of a level that are spent at the first look that can reject, and at the last look.
constexpr double kFirstShare = 0.8, kLastShare = 1 - kFirstShare;
// The last look has so many more pairs than the look before it, which is enough for its share to reject although some pairs
// disagree.
constexpr int kMorePairs = 4;
// A case with fewer pairs does not seem slower, whatever they are.
constexpr size_t kPairsToSeemSlower = 2;

// The share of a level that is spent after `pairs` pairs, if the first look that can reject comes after `first` pairs.
double share_at(int pairs, int first, int last) { return pairs == first ? kFirstShare : pairs == last ? kLastShare : 0; }

// A p value that is to be compared with the whole level, from the p value of a look with this share of it.
double whole_level_p(double p, double share) { return share > 0 ? std::min(1.0, p / share) : 1; }

}  // namespace

QuickLooks quick_looks(size_t cases, const GatePlan& plan) {
  check_levels(plan);
  QuickLooks looks{.pass = pairs_to_reject(1, kFirstShare * plan.pass_alpha),
                   .regression = pairs_to_reject(std::max<size_t>(1, cases), kFirstShare * plan.criteria.alpha)};
  looks.last = std::max(looks.pass, looks.regression) + kMorePairs;
  return looks;
}

std::vector<int> looks_of(size_t cases, const GatePlan& plan) {
  if (!plan.is_quick) return plan.looks;
  const auto [pass, regression, last] = quick_looks(cases, plan);
  std::vector<int> looks = {pass, regression, last};
  std::sort(looks.begin(), looks.end());
  looks.erase(std::unique(looks.begin(), looks.end()), looks.end());
  return looks;
}

QuickGate::QuickGate(size_t cases, const GatePlan& plan, uint64_t seed)
    : plan_(plan),
      looks_(quick_looks(cases, plan)),
      log_ratios_(cases),
      judgements_(cases),
      may_fail_(cases, false),
      given_up_(cases, false),
      random_(seed) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (auto& judgement : judgements_) judgement.ratio = {std::nan(""), {-infinity, infinity}};
}

bool QuickGate::has_failed() const {
  for (size_t i = 0; i < judgements_.size(); ++i)
    if (judgements_[i].verdict == Verdict::regression && !may_fail_[i]) return true;
  return false;
}

bool QuickGate::is_open(size_t index) const {
  return !given_up_[index] && judgements_[index].verdict == Verdict::inconclusive &&
         log_ratios_[index].size() < size_t(looks_.last);
}

bool QuickGate::seems_slower(size_t index) const {
  const auto& pairs = log_ratios_[index];
  return !may_fail_[index] && pairs.size() >= kPairsToSeemSlower && is_open(index) &&
         *std::min_element(pairs.begin(), pairs.end()) > std::log1p(plan_.criteria.min_shift);
}

std::optional<size_t> QuickGate::next() {
  if (has_failed()) return std::nullopt;
  for (size_t i = 0; i < log_ratios_.size(); ++i)
    if (seems_slower(i)) return i;
  for (int rounds = 0; rounds < 2; ++rounds) {
    while (!round_.empty()) {
      const auto index = round_.back();
      round_.pop_back();
      if (is_open(index)) return index;
    }
    round_.resize(log_ratios_.size());
    std::iota(round_.begin(), round_.end(), size_t{0});
    std::shuffle(round_.begin(), round_.end(), random_);
  }
  return std::nullopt;
}

void QuickGate::add(size_t index, double log_ratio) {
  log_ratios_.at(index).push_back(log_ratio);
  const auto pairs = int(log_ratios_[index].size());
  if (pairs == looks_.pass || pairs == looks_.regression || pairs == looks_.last) judge(index);
}

void QuickGate::judge(size_t index) {
  const auto pairs = int(log_ratios_[index].size());
  const auto tests = test_pairs(log_ratios_[index], plan_.criteria);
  const double alpha_share = share_at(pairs, looks_.regression, looks_.last) / double(log_ratios_.size());
  const double pass_share = share_at(pairs, looks_.pass, looks_.last);
  auto& judged = judgements_[index];
  judged.slower_p = std::min(judged.slower_p, whole_level_p(tests.slower_p, alpha_share));
  judged.faster_p = std::min(judged.faster_p, whole_level_p(tests.faster_p, alpha_share));
  judged.margin_p = std::min(judged.margin_p, whole_level_p(tests.margin_p, pass_share));
  const bool is_slower = tests.ratio.estimate > std::log1p(plan_.criteria.min_shift);
  if (judged.slower_p < plan_.criteria.alpha) judged.verdict = Verdict::regression;
  else if (judged.margin_p >= plan_.pass_alpha || (is_slower && pairs < looks_.last)) return;
  else judged.verdict = judged.faster_p < plan_.criteria.alpha ? Verdict::improvement : Verdict::pass;
}

std::vector<GateJudgement> QuickGate::judgements() const {
  auto judgements = judgements_;
  for (size_t i = 0; i < judgements.size(); ++i) judgements[i].ratio = test_pairs(log_ratios_[i], plan_.criteria).ratio;
  return judgements;
}

}  // namespace attnbench
