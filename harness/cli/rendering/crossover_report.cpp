// Prints from which length on one method needs less than another.
#include "harness/cli/rendering/analysis_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "harness/cli/rendering/answers.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

std::string length_or_dash(double length) {
  if (!std::isfinite(length) || length == 0) return "–";
  return fmt::format("{:.0f}", length);
}

// The name of a series of a pair: its method and, if the pair differs in other axes, these.
std::string name_in(const Crossover& pair, const Series& series) {
  auto others = pair.differs;
  std::erase(others, "method");
  return others.empty() ? series.method : series.method + " (" + SeriesNames::of(series, others) + ")";
}

// Where a crossover lies: its 95 % interval or, where that has no width because memory is counted, the measured lengths that it
// lies between.
std::string place_text(const Crossover& pair) {
  if (!pair.length) return "–";
  const auto low = length_or_dash(pair.interval.low), high = length_or_dash(pair.interval.high);
  if (low == high && low != "–")
    return fmt::format("{} and {} (measured)", length_or_dash(pair.between.low), length_or_dash(pair.between.high));
  return fmt::format("{} … {} (95 %)", low, high);
}

// The comparisons with this verdict: times first, and those of a setting together.
std::vector<const Crossover*> with_verdict(const Analysis& analysis, const SeriesNames& names, CrossoverVerdict verdict) {
  struct Named {
    const Crossover* pair;
    std::string setting;
  };
  std::vector<Named> named;
  for (const auto& pair : analysis.crossovers)
    if (pair.verdict == verdict) named.push_back({&pair, names.setting(pair.winner(), pair.differs)});
  std::stable_sort(named.begin(), named.end(), [](const Named& a, const Named& b) {
    if (a.pair->quantity != b.pair->quantity) return a.pair->quantity == "time";
    return a.setting < b.setting;
  });
  std::vector<const Crossover*> found;
  for (const auto& [pair, setting] : named) found.push_back(pair);
  return found;
}

void print_crossings(const Analysis& analysis, const SeriesNames& names, Format format) {
  TextTable table({"quantity", "setting", "needs less", "from N on", "between", "than"},
                  {.answers = {"needs less", "from N on", "between", "than"}, .kept = {"quantity", "setting"}});
  const auto crossings = with_verdict(analysis, names, CrossoverVerdict::crosses);
  for (const auto* pair : crossings)
    table.add_row({pair->quantity, names.setting(pair->winner(), pair->differs), name_in(*pair, pair->winner()),
                   length_or_dash(*pair->length), place_text(*pair), name_in(*pair, pair->loser())});
  const std::string title = "Crossovers: the first length from which one needs less than the other";
  if (crossings.empty()) {
    fmt::print("{}\nnone that the records support\n\n", heading(title, format));
    return;
  }
  print_section(title, table, format);
  if (std::any_of(crossings.begin(), crossings.end(), [](const auto* pair) { return pair->basis == RatioBasis::counted; })) {
    print_paragraph(
        "Memory is counted, so a crossover in memory has no interval: it lies between two measured lengths, and N is "
        "interpolated "
        "between these.");
    fmt::print("\n");
  }
}

// A series that needs less than others at every length that both have.
struct BelowOthers {
  std::string quantity, setting, name;
  double from = 0;                                     // the first common length with any of them
  std::vector<std::pair<std::string, double>> others;  // each with the first common length
};

// Within a setting, the series that is below most others comes first.
std::vector<BelowOthers> series_below_others(const Analysis& analysis, const SeriesNames& names) {
  std::vector<BelowOthers> rows;
  std::map<std::tuple<std::string, std::string, std::string>, size_t> index;  // by quantity, setting and name
  for (const auto* pair : with_verdict(analysis, names, CrossoverVerdict::never)) {
    BelowOthers mine{
        pair->quantity, names.setting(pair->winner(), pair->differs), name_in(*pair, pair->winner()), pair->from, {}};
    const auto [place, is_new] = index.emplace(std::tie(mine.quantity, mine.setting, mine.name), rows.size());
    if (is_new) rows.push_back(std::move(mine));
    auto& row = rows[place->second];
    row.from = std::min(row.from, pair->from);
    row.others.emplace_back(name_in(*pair, pair->loser()), pair->from);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const BelowOthers& a, const BelowOthers& b) {
    if (a.quantity != b.quantity) return a.quantity == "time";
    return a.setting != b.setting ? a.setting < b.setting : a.others.size() > b.others.size();
  });
  return rows;
}

// The width of a list of names in a table.
constexpr size_t kWidthOfNames = 78;

void print_never_crossing(const Analysis& analysis, const SeriesNames& names, Format format) {
  TextTable table({"quantity", "setting", "needs less", "from N on", "than"},
                  {.answers = {"needs less", "from N on", "than"}, .kept = {"quantity", "setting"}});
  table.limit_width("than", kWidthOfNames);
  const auto rows = series_below_others(analysis, names);
  for (const auto& row : rows) {
    std::vector<std::string> others;
    for (const auto& [name, from] : row.others)
      others.push_back(from == row.from ? name : fmt::format("{} (from {} on)", name, length_or_dash(from)));
    table.add_row({row.quantity, row.setting, row.name, length_or_dash(row.from), fmt::format("{}", fmt::join(others, ", "))});
  }
  if (!rows.empty())
    print_section("No crossing: one method needs less at every length at which both were measured", table, format);
}

// What a comparison compares, such as "time of linear / softmax (cpu, forward)".
std::string comparison_text(const Crossover& pair, const SeriesNames& names) {
  const auto setting = names.setting(*pair.one, pair.differs);
  return fmt::format("{} of {} / {}{}", pair.quantity, name_in(pair, *pair.one), name_in(pair, *pair.other),
                     setting.empty() ? "" : " (" + setting + ")");
}

void print_doubtful(const Analysis& analysis, const SeriesNames& names, bool all, Format format) {
  const auto doubtful = with_verdict(analysis, names, CrossoverVerdict::cannot_tell);
  if (doubtful.empty()) return;
  if (!all) {
    print_paragraph(fmt::format("Cannot tell for {} of {}{}:", doubtful.size(),
                                count_of(analysis.crossovers.size(), "comparison"),
                                doubtful.size() > 1 ? ", which --all lists" : ""));
    for (const auto doubt : {Doubt::noise, Doubt::wide, Doubt::equal_work, Doubt::returns}) {
      std::vector<const Crossover*> of_doubt;
      for (const auto* pair : doubtful)
        if (pair->doubt == doubt) of_doubt.push_back(pair);
      if (of_doubt.empty()) continue;
      const auto pair = comparison_text(*of_doubt.front(), names);
      const auto which =
          of_doubt.size() == 1 ? pair : fmt::format("{}, for example {}", count_of(of_doubt.size(), "comparison"), pair);
      print_item(fmt::format("{}: {}", which, reason_of(doubt)), format);
    }
    fmt::print("\n");
    return;
  }
  TextTable table({"quantity", "setting", "one", "other", "crossover", "between", "why"},
                  {.answers = {"one", "other", "crossover", "between", "why"}, .kept = {"quantity", "setting"}});
  for (const auto* pair : doubtful)
    table.add_row({pair->quantity, names.setting(*pair->one, pair->differs), name_in(*pair, *pair->one),
                   name_in(*pair, *pair->other), pair->length ? length_or_dash(*pair->length) : "–", place_text(*pair),
                   std::string(reason_of(pair->doubt))});
  print_section("Comparisons that cannot tell", table, format);
}

// What the intervals of the comparisons mean.
void print_meaning_of_crossovers(const Analysis& analysis) {
  size_t times = 0, recorded = 0;
  for (const auto& pair : analysis.crossovers) {
    if (pair.quantity != "time") continue;
    ++times;
    if (pair.basis == RatioBasis::records) ++recorded;
  }
  if (times == 0) return;
  std::string text =
      "Each comparison of times uses intervals of the level 95 %, by itself and not over all comparisons together.";
  if (recorded > 0)
    text += fmt::format(
        " For {}, it combines the intervals of the records, because there are not {} processes of each case; another run can "
        "then differ by more.",
        share_text(recorded, times), kMinValuesOfInterval);
  print_paragraph(text);
  fmt::print("\n");
}

void print_break_even(const Analysis& analysis, const SeriesNames& names) {
  bool any = false;
  for (const auto& pair : analysis.crossovers) {
    const auto& differs = pair.differs;
    if (pair.quantity != "time" || std::find(differs.begin(), differs.end(), "device") == differs.end()) continue;
    const auto* const faster = pair.winner().setting.at("device") == "cuda" ? "GPU" : "CPU";
    const auto where = names.setting(pair.winner(), {"device"});
    auto text = fmt::format("break-even of {}{}: ", pair.winner().method, where.empty() ? "" : " (" + where + ")");
    if (pair.verdict == CrossoverVerdict::crosses)
      text += fmt::format("the {} is faster from N = {} on (between {})", faster, length_or_dash(*pair.length), place_text(pair));
    else if (pair.verdict == CrossoverVerdict::never)
      text += fmt::format("the {} is faster at every length, from N = {} on", faster, length_or_dash(pair.from));
    else text += fmt::format("cannot tell, because {}", reason_of(pair.doubt));
    print_paragraph(text);
    any = true;
  }
  if (any) fmt::print("\n");
}

}  // namespace

void print_crossovers(const Analysis& analysis, const SeriesNames& names, bool all, Format format) {
  print_crossings(analysis, names, format);
  print_never_crossing(analysis, names, format);
  print_doubtful(analysis, names, all, format);
  print_meaning_of_crossovers(analysis);
  print_break_even(analysis, names);
}

}  // namespace attnbench
