// `attnbench analyse`: prints growth, crossovers and the lengths that fit into memory.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>

#include "harness/analysis/analysis.h"
#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/rendering/answers.h"
#include "harness/cli/rendering/case_names.h"
#include "harness/cli/rendering/record_charts.h"
#include "harness/cli/rendering/series_names.h"
#include "harness/cli/shared_options.h"
#include "harness/records/record_folders.h"
#include "harness/sweep/catalogue.h"
#include "harness/text/errors.h"
#include "harness/text/text_table.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

std::string length_text(double length) {
  if (!std::isfinite(length) || length == 0) return "–";
  return fmt::format("{:.0f}", length);
}

// With two digits after the point, and without the sign of a zero.
std::string two_digits(double value) { return fmt::format("{:.2f}", std::round(100 * value) / 100 + 0.0); }

std::string heading(const std::string& title, Format format) {
  return format == Format::markdown ? "### " + title + "\n" : title;
}

void print_section(const std::string& title, const TextTable& table, Format format) {
  fmt::print("{}\n", heading(title, format));
  print_table(table, format);
  fmt::print("\n");
}

std::string verdict_text(const Order& order) {
  switch (order.verdict()) {
    case GrowthVerdict::none: return order.declared;
    case GrowthVerdict::cannot_tell: return fmt::format("cannot tell ({} is declared)", order.declared);
    case GrowthVerdict::consistent_below: return fmt::format("consistent with {} (grows more slowly)", order.declared);
    default: return fmt::format("{} {}", verdict_name(order.verdict()), order.declared);
  }
}

// Prints an item of a list, whose text Markdown is not to interpret.
void print_item(const std::string& text, Format format) {
  if (format == Format::markdown) print_text("- " + markdown_text(text) + "\n");
  else print_paragraph("- " + text);
}

// The rows without an exponent: how many there are, and the names of their methods in each setting. `has_others` says whether
// there are rows in the table above.
void print_unfitted(const std::vector<const Order*>& unfitted, const SeriesNames& names, bool has_others, Format format) {
  std::map<std::string, std::vector<std::string>> methods;
  for (const auto* order : unfitted) {
    auto& of_setting = methods[names.setting(*order->series)];
    if (of_setting.empty() || of_setting.back() != order->series->method) of_setting.push_back(order->series->method);
  }
  print_paragraph(fmt::format("Cannot tell for {}, because fewer than three lengths have the same batch size:",
                              count_of(unfitted.size(), has_others ? "more row" : "row")));
  for (const auto& [setting, of_setting] : methods)
    print_item(fmt::format("{}{}{}", setting, setting.empty() ? "" : ": ", fmt::join(of_setting, ", ")), format);
  fmt::print("\n");
}

std::string share_text(size_t count, size_t total) {
  return count == total ? fmt::format("all {}", total) : fmt::format("{} of the {}", count, total);
}

// What the verdicts and the intervals of the orders mean.
void print_meaning_of_orders(const Growth& growth) {
  const auto from_points = size_t(std::count_if(growth.orders.begin(), growth.orders.end(), [](const Order& order) {
    return order.exponent && order.declared_exponent && order.quantity == "time" && order.basis == ExponentBasis::points;
  }));
  std::string text;
  if (growth.tests > 0)
    text += fmt::format(
        "Over all rows together, a verdict on a time is wrong with a probability of at most {:.0f} %: the number of such rows is "
        "{}, and each of their intervals has the level {:.2f} %. An order is consistent if the interval ends at most {} above "
        "the "
        "declared exponent, and contradicted if the whole interval, and the exponent of every step between neighbouring lengths, "
        "is above that. ",
        100 * kErrorRate, growth.tests, 100 * growth.confidence(), kExponentMargin);
  if (from_points > 0)
    text += fmt::format(
        "For {}, the interval rests on the scatter of the points alone, because there are not {} processes of each case. ",
        share_text(from_points, growth.tests), kMinValuesOfInterval);
  print_paragraph(text + "Memory is counted; its interval is the range of the exponents between neighbouring lengths.");
  fmt::print("\n");
}

void print_orders(const Analysis& analysis, const SeriesNames& names, bool all, Format format) {
  TextTable table;
  for (const auto* header : {"method", "setting", "quantity", "range of N"}) table.add_column(header);
  for (const auto* header : {"batch", "exponent", "interval"}) table.add_column(header, TextTable::Align::right);
  table.add_column("declared order");
  table.answer_with({"method", "exponent", "interval", "declared order"});
  table.keep({"setting", "quantity"});
  table.leave_out_first({"batch", "range of N"});
  std::vector<const Order*> unfitted;
  for (const auto& order : analysis.growth.orders) {
    if (!order.exponent) unfitted.push_back(&order);
    if (!order.exponent && !all) continue;
    const auto& [low, high] = order.interval;
    table.add_row(
        {order.series->method, names.setting(*order.series), order.quantity, fmt::format("{:.0f}–{:.0f}", order.from, order.to),
         fmt::format("{}", order.batch), order.exponent ? two_digits(*order.exponent) : "–",
         order.exponent ? two_digits(low) + " … " + two_digits(high) : "–", verdict_text(order)},
        order.verdict() == GrowthVerdict::contradicts ? Tone::bad : Tone::plain);
  }
  const bool any = all ? !analysis.growth.orders.empty() : unfitted.size() < analysis.growth.orders.size();
  if (any) print_section("Growth with N", table, format);
  else fmt::print("{}\n", heading("Growth with N", format));
  if (!unfitted.empty() && !all) print_unfitted(unfitted, names, any, format);
  if (any) print_meaning_of_orders(analysis.growth);
}

// The name of a series of a pair: its method and, if the pair differs in other axes, these.
std::string name_in(const Crossover& pair, const Series& series) {
  return pair.differs == std::vector<std::string>{"method"} ? series.method
                                                            : series.method + " (" + SeriesNames::of(series, pair.differs) + ")";
}

// Where a crossover lies: its 95 % interval or, where that has no width because memory is counted, the measured lengths that it
// lies between.
std::string place_text(const Crossover& pair) {
  if (!pair.length) return "–";
  const auto low = length_text(pair.interval.low), high = length_text(pair.interval.high);
  if (low == high && low != "–")
    return fmt::format("{} and {} (measured)", length_text(pair.between.low), length_text(pair.between.high));
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
  TextTable table;
  for (const auto* header : {"quantity", "setting", "needs less", "from N on", "between", "than"}) table.add_column(header);
  table.answer_with({"needs less", "from N on", "between", "than"});
  table.keep({"quantity", "setting"});
  const auto crossings = with_verdict(analysis, names, CrossoverVerdict::crosses);
  for (const auto* pair : crossings)
    table.add_row({pair->quantity, names.setting(pair->winner(), pair->differs), name_in(*pair, pair->winner()),
                   length_text(*pair->length), place_text(*pair), name_in(*pair, pair->loser())});
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
  TextTable table;
  for (const auto* header : {"quantity", "setting", "needs less", "from N on", "than"}) table.add_column(header);
  table.answer_with({"needs less", "from N on", "than"});
  table.keep({"quantity", "setting"});
  table.limit_width("than", kWidthOfNames);
  const auto rows = series_below_others(analysis, names);
  for (const auto& row : rows) {
    std::vector<std::string> others;
    for (const auto& [name, from] : row.others)
      others.push_back(from == row.from ? name : fmt::format("{} (from {} on)", name, length_text(from)));
    table.add_row({row.quantity, row.setting, row.name, length_text(row.from), fmt::format("{}", fmt::join(others, ", "))});
  }
  if (!rows.empty()) print_section("No crossing at the measured lengths: one needs less at all that both have", table, format);
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
  TextTable table;
  for (const auto* header : {"quantity", "setting", "one", "other", "crossover", "between", "why"}) table.add_column(header);
  table.answer_with({"one", "other", "crossover", "between", "why"});
  table.keep({"quantity", "setting"});
  for (const auto* pair : doubtful)
    table.add_row({pair->quantity, names.setting(*pair->one, pair->differs), name_in(*pair, *pair->one),
                   name_in(*pair, *pair->other), pair->length ? length_text(*pair->length) : "–", place_text(*pair),
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
      text += fmt::format("the {} is faster from N = {} on (between {})", faster, length_text(*pair.length), place_text(pair));
    else if (pair.verdict == CrossoverVerdict::never)
      text += fmt::format("the {} is faster at every length, from N = {} on", faster, length_text(pair.from));
    else text += fmt::format("cannot tell, because {}", reason_of(pair.doubt));
    print_paragraph(text);
    any = true;
  }
  if (any) fmt::print("\n");
}

// The rows that fit up to the longest length of the sweep: how many there are, and the names of their methods for each setting
// and budget. Settings and budgets with the same methods share a line. `has_others` says whether there are rows in the table
// above.
void print_fitting_throughout(const std::vector<const BudgetFit*>& fits, const SeriesNames& names, bool has_others,
                              Format format) {
  using Names = std::vector<std::string>;
  const auto add = [](Names& list, const std::string& name) {
    if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
  };
  std::map<std::pair<std::string, double>, Names> methods;  // by setting and budget
  for (const auto* fit : fits) add(methods[{names.setting(*fit->series), fit->budget_bytes}], fit->series->method);
  std::map<std::pair<std::string, Names>, Names> budgets;  // by setting and methods
  for (const auto& [key, of_key] : methods) add(budgets[{key.first, of_key}], format_bytes(key.second));
  std::vector<std::pair<std::pair<Names, Names>, Names>> settings;  // by budgets and methods
  for (const auto& [key, of_key] : budgets) {
    const std::pair same = {of_key, key.second};
    auto place = std::find_if(settings.begin(), settings.end(), [&](const auto& one) { return one.first == same; });
    if (place == settings.end()) place = settings.insert(settings.end(), {same, {}});
    add(place->second, key.first);
  }
  print_paragraph(
      fmt::format("{} {} up to the longest length of the sweep{}:", count_of(fits.size(), has_others ? "more row" : "row"),
                  fits.size() == 1 ? "fits" : "fit", fits.size() == 1 ? "" : ", which --all lists"));
  for (const auto& [key, of_key] : settings) {
    const auto setting = fmt::format("{}", fmt::join(of_key, "; "));
    print_item(fmt::format("{}: {}{}", fmt::join(key.first, " and "), fmt::join(key.second, ", "),
                           setting.empty() ? "" : " (" + setting + ")"),
               format);
  }
  fmt::print("\n");
}

void print_fits(const Analysis& analysis, const SeriesNames& names, bool all, Format format) {
  TextTable table;
  for (const auto* header : {"method", "setting", "budget"}) table.add_column(header);
  table.add_column("longest N", TextTable::Align::right);
  table.add_column("limited by");
  table.answer_with({"method", "longest N", "limited by"});
  table.keep({"setting", "budget"});
  std::vector<const BudgetFit*> throughout;
  for (const auto& fit : analysis.fits) {
    if (!all && fit.limit == kEndOfSweep) {
      throughout.push_back(&fit);
      continue;
    }
    table.add_row({fit.series->method, names.setting(*fit.series), format_bytes(fit.budget_bytes),
                   fit.longest ? std::to_string(*fit.longest) : "–", fit.limit});
  }
  const std::string title = "Longest N within a memory budget";
  if (all || throughout.size() < analysis.fits.size()) print_section(title, table, format);
  else fmt::print("{}\n", heading(title, format));
  if (!throughout.empty()) print_fitting_throughout(throughout, names, throughout.size() < analysis.fits.size(), format);
}

// How many declared orders and how many comparisons have which verdict, in two sentences.
std::vector<std::string> verdicts_in_words(const Analysis& analysis) {
  std::vector<std::string> sentences;
  std::vector<std::string> contradicted;
  size_t consistent = 0, doubtful = 0;
  for (const auto& order : analysis.growth.orders) switch (order.verdict()) {
      case GrowthVerdict::contradicts: contradicted.push_back(order.quantity + " of " + order.series->method); break;
      case GrowthVerdict::cannot_tell: ++doubtful; break;
      case GrowthVerdict::none: break;
      default: ++consistent;
    }
  const auto judged = consistent + doubtful + contradicted.size();
  std::sort(contradicted.begin(), contradicted.end());
  contradicted.erase(std::unique(contradicted.begin(), contradicted.end()), contradicted.end());
  if (judged > 0)
    sentences.push_back(fmt::format(
        "Growth: of {} declared orders, {} are consistent with the records, {} cannot be told, and {}.", judged, consistent,
        doubtful,
        contradicted.empty()
            ? "none is contradicted"
            : fmt::format("{} are contradicted ({})", judged - consistent - doubtful, fmt::join(contradicted, ", "))));
  const auto& pairs = analysis.crossovers;
  const auto count = [&](CrossoverVerdict verdict) {
    return std::count_if(pairs.begin(), pairs.end(), [&](const Crossover& pair) { return pair.verdict == verdict; });
  };
  if (!pairs.empty())
    sentences.push_back(fmt::format(
        "Crossovers: of {}, {} {} at a known length, in {} one needs less at every length, {} {} equal, and {} cannot be told.",
        count_of(pairs.size(), "comparison"), count(CrossoverVerdict::crosses),
        count(CrossoverVerdict::crosses) == 1 ? "crosses" : "cross", count(CrossoverVerdict::never),
        count(CrossoverVerdict::equal), is_or_are(count(CrossoverVerdict::equal)), count(CrossoverVerdict::cannot_tell)));
  return sentences;
}

// Which method is the fastest; the first of the answers that come before all tables.
std::vector<std::string> speeds_in_words(const std::vector<Record>& records, const Analysis& analysis) {
  const auto baseline = records.empty() ? "" : default_baseline(records);
  if (baseline.empty()) return {};
  return speed_answers(records, baseline, EquivalenceCriteria{}.within, &analysis.growth);
}

// Gives the series the names of their methods, which the tables show in place of the methods' texts.
void name_methods(Analysis& analysis, const std::vector<Record>& records) {
  const MethodNames names(records);
  for (auto& series : analysis.series) series.method = names.of(series.method);
}

}  // namespace

Run add_analyse_command(Command& command) {
  struct AnalyseOptions {
    std::string folder;
    std::vector<std::string> memory = {"11 GiB", "24 GiB"};
    bool all = false;
    Format format = Format::text;
    Charts charts = Charts::on_terminals;
  };
  const auto options = std::make_shared<AnalyseOptions>();
  add_records_argument(command, "folder", options->folder);
  command.add("--memory", &options->memory, "memory budgets; for each the longest sequence that fits is found",
              {.placeholder = "SIZES", .separator = ','});
  command.add("--all", &options->all, "also show every row and every comparison that cannot tell, and why");
  add_format_option(command, options->format, {Format::text, Format::markdown, Format::json});
  add_charts_option(command, options->charts);
  command.add_example("analyse results/figure1/*/",
                      "shows how time and memory grow, from which length on a method needs less than another, "
                      "and which lengths fit in 11 and 24 GiB");
  return [options](const WorkerProgram& worker) {
    check_charts(options->charts, options->format == Format::text);
    const auto records = read_records(record_folder(options->folder));
    std::vector<double> budgets;
    for (const auto& budget : options->memory) {
      try {
        budgets.push_back(double(parse_bytes(budget)));
      } catch (const std::invalid_argument& error) {
        throw UsageError(fmt::format("--memory: {}", error.what()));
      }
    }
    auto analysis = analyse(records, Catalogue::load(worker).methods(), budgets);
    if (options->format == Format::json) {
      print_json(analysis.to_json());
      return exit_code::success;
    }
    const SeriesNames names(analysis.series);
    auto answers = speeds_in_words(records, analysis);
    name_methods(analysis, records);
    for (auto& sentence : verdicts_in_words(analysis)) answers.push_back(std::move(sentence));
    if (options->format == Format::markdown)
      for (auto& sentence : answers) sentence = "- " + markdown_text(sentence);
    print_answers(answers);
    if (options->format == Format::text) print_charts(records, options->charts);
    print_orders(analysis, names, options->all, options->format);
    print_crossings(analysis, names, options->format);
    print_never_crossing(analysis, names, options->format);
    print_doubtful(analysis, names, options->all, options->format);
    print_meaning_of_crossovers(analysis);
    print_break_even(analysis, names);
    print_fits(analysis, names, options->all, options->format);
    fmt::print("Implausible records: {}\n", analysis.implausible.empty() ? "none" : "");
    if (analysis.implausible.empty()) return exit_code::success;
    const CaseNames case_names(records);
    for (const auto* record : analysis.implausible)
      print_paragraph(fmt::format("- {}: {}", case_names.of(*record), record->text("implausible")));
    return exit_code::success;
  };
}

}  // namespace attnbench
