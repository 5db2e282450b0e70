// Prints which lengths fit into memory, what the verdicts of an analysis are, and the parts that its sections share.
#include "harness/cli/rendering/analysis_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "harness/cli/rendering/answers.h"
#include "harness/text/units.h"

namespace attnbench {

std::string heading(const std::string& title, Format format) {
  return format == Format::markdown ? "### " + title + "\n" : title;
}

void print_section(const std::string& title, const TextTable& table, Format format) {
  fmt::print("{}\n", heading(title, format));
  print_table(table, format);
  fmt::print("\n");
}

void print_item(const std::string& text, Format format) {
  if (format == Format::markdown) print_text("- " + markdown_text(text) + "\n");
  else print_paragraph("- " + text);
}

std::string share_text(size_t count, size_t total) {
  return count == total ? fmt::format("all {}", total) : fmt::format("{} of the {}", count, total);
}

namespace {

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

}  // namespace

void print_budget_fits(const Analysis& analysis, const SeriesNames& names, bool all, Format format) {
  TextTable table({"method", "setting", "budget", right("longest N"), "limited by"},
                  {.answers = {"method", "longest N", "limited by"}, .kept = {"setting", "budget"}});
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
        "Growth: of {} orders that methods declare, {} are consistent with the records, {} cannot be told, and {}.", judged,
        consistent, doubtful,
        contradicted.empty()
            ? "none is contradicted"
            : fmt::format("{} are contradicted ({})", judged - consistent - doubtful, fmt::join(contradicted, ", "))));
  const auto& pairs = analysis.crossovers;
  const auto count = [&](CrossoverVerdict verdict) {
    return std::count_if(pairs.begin(), pairs.end(), [&](const Crossover& pair) { return pair.verdict == verdict; });
  };
  if (!pairs.empty())
    sentences.push_back(fmt::format(
        "Crossovers: of {} of times or memory, {} {} at a known length, in {} one method needs less at every length, {} {} "
        "equal, and {} cannot be told.",
        count_of(pairs.size(), "comparison"), count(CrossoverVerdict::crosses),
        count(CrossoverVerdict::crosses) == 1 ? "crosses" : "cross", count(CrossoverVerdict::never),
        count(CrossoverVerdict::equal), is_or_are(count(CrossoverVerdict::equal)), count(CrossoverVerdict::cannot_tell)));
  return sentences;
}

}  // namespace attnbench
