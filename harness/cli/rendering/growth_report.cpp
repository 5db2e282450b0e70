// Prints how time and memory grow with the length, beside the orders that methods declare.
#include "harness/cli/rendering/analysis_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/cli/rendering/answers.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

// With two digits after the point, and without the sign of a zero.
std::string two_digits(double value) { return fmt::format("{:.2f}", std::round(100 * value) / 100 + 0.0); }

std::string verdict_text(const Order& order) {
  switch (order.verdict()) {
    case GrowthVerdict::none: return order.declared;
    case GrowthVerdict::cannot_tell: return fmt::format("cannot tell ({} is declared)", order.declared);
    case GrowthVerdict::consistent_below: return fmt::format("consistent with {} (grows more slowly)", order.declared);
    default: return fmt::format("{} {}", verdict_name(order.verdict()), order.declared);
  }
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
        "the declared exponent, and contradicted if the whole interval, and the exponent of every step between neighbouring "
        "lengths, is above that. ",
        100 * kErrorRate, growth.tests, 100 * growth.confidence(), kExponentMargin);
  if (from_points > 0)
    text += fmt::format(
        "For {}, the interval rests on the scatter of the points alone, because there are not {} processes of each case. ",
        share_text(from_points, growth.tests), kMinValuesOfInterval);
  print_paragraph(text + "Memory is counted; its interval is the range of the exponents between neighbouring lengths.");
  fmt::print("\n");
}

}  // namespace

void print_growth(const Analysis& analysis, const SeriesNames& names, bool all, Format format) {
  TextTable table(
      {"method", "setting", "quantity", "range of N", right("batch"), right("exponent"), right("interval"), "declared order"},
      {.answers = {"method", "exponent", "interval", "declared order"},
       .kept = {"setting", "quantity"},
       .left_out_first = {"batch", "range of N"}});
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

}  // namespace attnbench
