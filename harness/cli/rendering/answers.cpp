// Chooses, for each setting, the few speedups that answer who asked, and puts them into sentences.
#include "harness/cli/rendering/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/analysis/series.h"
#include "harness/cli/rendering/series_names.h"
#include "harness/cli/shared_options.h"
#include "harness/schema/method_names.h"

namespace attnbench {
namespace {

constexpr size_t kMaxSentences = 8;

// The known speedups of a setting, which is the axes besides the method and the lengths.
struct SettingSpeedups {
  std::string name;
  std::vector<const Speedup*> speedups;
};

double length_of(const Speedup& speedup) { return speedup.record->number("query_len"); }
double log_ratio_of(const Speedup& speedup) { return speedup.ratio.ratio.estimate; }

// The finding, and for fewer processes than a verdict needs what all of them measured.
Finding finding_of(const Speedup& speedup) {
  if (speedup.has_verdict()) return speedup.finding;
  const auto& [low, high] = speedup.ratio.ratio.interval;
  const bool is_range = speedup.ratio.scope == IntervalScope::range_of_processes;
  if (is_range ? high < 0 : log_ratio_of(speedup) < 0) return Finding::faster;
  if (is_range ? low > 0 : log_ratio_of(speedup) > 0) return Finding::slower;
  return Finding::cannot_tell;
}

// The speedup of the baseline against the method, for sentences that begin with the faster one.
Speedup inverse_of(Speedup speedup) {
  auto& [estimate, interval] = speedup.ratio.ratio;
  estimate = -estimate;
  interval = {-interval.high, -interval.low};
  return speedup;
}

// How sure a speedup is, as text in brackets.
std::string certainty_of(const Speedup& speedup) {
  switch (speedup.ratio.scope) {
    case IntervalScope::none: return "one process, so no interval";
    case IntervalScope::range_of_processes:
      return fmt::format("{} of {} processes, too few for a verdict", interval_text(speedup), speedup.ratio.processes);
    case IntervalScope::across_processes: break;
  }
  return "95 %: " + interval_text(speedup);
}

// From which length on, of those at which both were measured, the method is faster than the baseline, as the end of a sentence.
std::string faster_from(const SettingSpeedups& setting, const Speedup& best) {
  std::map<double, bool> is_faster;  // by length
  for (const auto* speedup : setting.speedups)
    if (speedup->record->text("method") == best.record->text("method"))
      is_faster[length_of(*speedup)] = finding_of(*speedup) == Finding::faster;
  if (is_faster.size() < 2) return "";
  auto from = is_faster.end();
  while (from != is_faster.begin() && std::prev(from)->second) --from;
  if (from == is_faster.begin()) return fmt::format(", and faster at every measured N from {} on", from->first);
  if (std::next(from) == is_faster.end()) return ", and at no shorter measured N";
  return fmt::format(", and faster at every measured N from {} on, not at {}", from->first, std::prev(from)->first);
}

// The other methods whose intervals at the length of the best overlap its own, in words; empty if there are none.
std::string maybe_as_fast(const SettingSpeedups& setting, const Speedup& best, const MethodNames& names) {
  std::vector<std::string> found;
  if (best.ratio.scope == IntervalScope::none) return "";
  for (const auto* speedup : setting.speedups)
    if (speedup != &best && length_of(*speedup) == length_of(best) &&
        speedup->ratio.ratio.interval.low <= best.ratio.ratio.interval.high)
      found.push_back(names.of(*speedup->record));
  if (found.size() < 2) return found.empty() ? "" : found[0];
  const auto last = found.back();
  found.pop_back();
  return fmt::format("{} and {}", fmt::join(found, ", "), last);
}

// How the time of a method grows with the length, if that is known.
const Order* order_of_time(const Growth& growth, const Record& like, const std::string& method) {
  for (const auto& order : growth.orders) {
    if (order.quantity != "time" || !order.exponent || order.series->method != method) continue;
    const auto& setting = order.series->setting;
    const bool is_same = std::all_of(setting.begin(), setting.end(), [&](const auto& axis) {
      return axis.first == "method" || like.get(axis.first) == axis.second;
    });
    if (is_same) return &order;
  }
  return nullptr;
}

// The lengths over which an exponent was fitted.
std::string range_in_words(const Order& order) { return fmt::format("from N = {} to {}", order.from, order.to); }

// How the times of two methods grow, as a sentence after a space; empty if it is not known of either.
std::string growth_in_words(const Growth& growth, const Record& like, const std::string& method, const std::string& baseline,
                            const MethodNames& names) {
  const auto *mine = order_of_time(growth, like, method), *theirs = order_of_time(growth, like, baseline);
  if (!mine && !theirs) return "";
  const auto of = [&](const Order& order, const std::string& of_method) {
    return fmt::format("as N^{:.2f} for {}", *order.exponent, names.of(of_method));
  };
  if (!mine || !theirs) {
    const auto& known = mine ? *mine : *theirs;
    return fmt::format(" The time grows {} {}.", of(known, mine ? method : baseline), range_in_words(known));
  }
  if (range_in_words(*mine) == range_in_words(*theirs))
    return fmt::format(" The time grows {} and {} {}.", of(*mine, method), of(*theirs, baseline), range_in_words(*mine));
  return fmt::format(" The time grows {} ({}) and {} ({}).", of(*mine, method), range_in_words(*mine), of(*theirs, baseline),
                     range_in_words(*theirs));
}

std::string sentence_of(const SettingSpeedups& setting, const std::string& baseline_method, double within, const Growth* growth,
                        const MethodNames& names) {
  double longest = 0;
  for (const auto* speedup : setting.speedups) longest = std::max(longest, length_of(*speedup));
  const Speedup* best = nullptr;
  size_t others = 0;
  for (const auto* speedup : setting.speedups) {
    if (length_of(*speedup) < longest) continue;
    ++others;
    if (!best || log_ratio_of(*speedup) < log_ratio_of(*best)) best = speedup;
  }
  const auto& method = names.of(*best->record);
  const auto& baseline = names.of(baseline_method);
  const auto speed = fmt::format("{} × as fast", speed_text(speed_of(*best)));
  const auto sure = certainty_of(*best);
  std::string text = setting.name.empty() ? "" : setting.name + ": ";
  switch (finding_of(*best)) {
    case Finding::faster: {
      const auto as_fast = maybe_as_fast(setting, *best, names);
      text += fmt::format("{} is {}{} as {} at N = {} ({}){}.{}", method, others == 1 || !as_fast.empty() ? "" : "the fastest, ",
                          speed, baseline, longest, sure, faster_from(setting, *best),
                          as_fast.empty() ? "" : fmt::format(" It is not certain that {} is slower.", as_fast));
      break;
    }
    case Finding::slower:
      text += others == 1
                  ? fmt::format("{} is {} × as fast as {} at N = {} ({}).", baseline, speed_text(1 / speed_of(*best)), method,
                                longest, certainty_of(inverse_of(*best)))
                  : fmt::format("{} is the fastest at N = {}; the next, {}, is {} ({}).", baseline, longest, method, speed, sure);
      break;
    case Finding::equivalent:
      text += fmt::format("{} is as fast as {} within {:g} % at N = {}: {} ({}).", method, baseline, 100 * within, longest, speed,
                          sure);
      break;
    case Finding::cannot_tell:
      text += fmt::format("it is not certain whether {} or {} is faster at N = {}: {} is {} ({}).", method, baseline, longest,
                          method, speed, sure);
      break;
  }
  if (!growth) return text;
  const bool begins_with_baseline = others == 1 && finding_of(*best) == Finding::slower;
  auto first = best->record->text("method"), second = baseline_method;
  if (begins_with_baseline) std::swap(first, second);
  return text + growth_in_words(*growth, *best->record, first, second, names);
}

}  // namespace

std::string speed_text(double speed) {
  if (speed >= 100) return fmt::format("{:.0f}", speed);
  return speed >= 10 ? fmt::format("{:.1f}", speed) : fmt::format("{:#.3g}", speed);
}

double speed_of(const Speedup& speedup) { return std::exp(-log_ratio_of(speedup)); }

std::string interval_text(const Speedup& speedup) {
  if (speedup.ratio.scope == IntervalScope::none) return "–";
  const auto& [low, high] = speedup.ratio.ratio.interval;
  return fmt::format("{}{} … {}", speedup.ratio.scope == IntervalScope::range_of_processes ? "range " : "",
                     speed_text(std::exp(-high)), speed_text(std::exp(-low)));
}

std::vector<std::string> speed_answers(const std::vector<Record>& records, const std::string& baseline, double within,
                                       const Growth* growth) {
  auto series = series_of(records);
  std::erase_if(series, [](const Series& one) { return one.points("time").empty(); });
  if (series.empty()) return {};
  const SeriesNames names(series);
  std::map<const Record*, const Series*> series_by_record;
  for (const auto& one : series)
    for (const auto* record : one.records) series_by_record[record] = &one;
  const auto all = speedups(records, baseline, within);
  std::vector<SettingSpeedups> settings;
  std::map<std::string, size_t> index;
  for (const auto& speedup : all) {
    const auto found = series_by_record.find(speedup.record);
    if (!speedup.is_known || found == series_by_record.end()) continue;
    const auto [place, is_new] = index.emplace(names.setting(*found->second), settings.size());
    if (is_new) settings.push_back({place->first, {}});
    settings[place->second].speedups.push_back(&speedup);
  }
  const MethodNames methods(records);
  std::vector<std::string> sentences;
  for (size_t i = 0; i < std::min(settings.size(), kMaxSentences); ++i)
    sentences.push_back(sentence_of(settings[i], baseline, within, growth, methods));
  if (settings.size() > kMaxSentences)
    sentences.push_back(fmt::format("There are {} more settings.", settings.size() - kMaxSentences));
  return sentences;
}

std::vector<std::string> speed_answers(const std::vector<Record>& records) {
  const auto baseline = records.empty() ? "" : default_baseline(records);
  if (baseline.empty()) return {};
  const auto series = series_of(records);
  const auto growth = growth_of(series, Json::array());
  return speed_answers(records, baseline, EquivalenceCriteria{}.within, &growth);
}

void print_answers(const std::vector<std::string>& sentences) {
  for (const auto& sentence : sentences) print_paragraph(sentence);
  if (!sentences.empty()) print_text("\n");
}

}  // namespace attnbench
