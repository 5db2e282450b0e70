#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <memory>
#include <set>

#include "harness/analysis/analysis.h"
#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/shared_options.h"
#include "harness/records/result_folder.h"
#include "harness/sweep/catalogue.h"
#include "harness/text/errors.h"
#include "harness/text/text_table.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

// Describes a series by those axes in which the series of an analysis differ. The method is not part of the description.
class SeriesNames {
 public:
  explicit SeriesNames(const std::vector<Series>& all) {
    for (const auto& series : all)
      for (const auto& [axis, value] : series.setting)
        if (axis != "method" && value != all.front().setting.at(axis)) varying_.insert(axis);
  }
  // The description by all of these axes except those in `left_out`.
  std::string setting(const Series& series, const std::vector<std::string>& left_out = {}) const {
    std::vector<std::string> axes;
    for (const auto& axis : varying_)
      if (std::find(left_out.begin(), left_out.end(), axis) == left_out.end()) axes.push_back(axis);
    return of(series, axes, "not");
  }
  // The description by these axes. `negation` is put before the name of a flag that is false.
  static std::string of(const Series& series, const std::vector<std::string>& axes, const std::string& negation = "no") {
    std::vector<std::string> parts;
    for (const auto& axis : axes) {
      const auto& value = series.setting.at(axis);
      if (value.is_boolean()) parts.push_back(value.get<bool>() ? axis : negation + " " + axis);
      else parts.push_back(value.is_string() ? value.get<std::string>() : axis + " " + value.dump());
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }

 private:
  std::set<std::string> varying_;
};

std::string length_text(double length) {
  if (!std::isfinite(length) || length == 0) return "–";
  return fmt::format("{:.0f}", length);
}

std::string heading(const std::string& title, Format format) {
  return format == Format::markdown ? "### " + title + "\n" : title;
}

void print_section(const std::string& title, const TextTable& table, Format format) {
  fmt::print("{}\n", heading(title, format));
  print_table(table, format);
  fmt::print("\n");
}

void print_orders(const Analysis& analysis, const SeriesNames& names, Format format) {
  TextTable table;
  for (const auto* header : {"method", "setting", "quantity", "range of N", "batch"}) table.add_column(header);
  for (const auto* header : {"exponent", "95 %"}) table.add_column(header, TextTable::Align::right);
  for (const auto* header : {"declared order", ""}) table.add_column(header);
  for (const auto& order : analysis.orders) {
    const auto& ends = order.fit.slope_interval;
    table.add_row(
        {order.series->method, names.setting(*order.series), order.quantity, fmt::format("{:.0f}–{:.0f}", order.from, order.to),
         order.batch_from == order.batch_to ? fmt::format("{}", order.batch_to)
                                            : fmt::format("{}–{}", order.batch_from, order.batch_to),
         fmt::format("{:.2f}", order.fit.slope), fmt::format("{:.2f} … {:.2f}", ends.low, ends.high), order.declared,
         order.contradicts() ? "CONTRADICTS" : ""},
        order.contradicts() ? Tone::bad : Tone::plain);
  }
  print_section("Growth with N", table, format);
}

void print_crossovers(const Analysis& analysis, const SeriesNames& names, Format format) {
  TextTable table;
  for (const auto* header : {"needs less", "from N on", "95 %", "than", "quantity", "setting"}) table.add_column(header);
  size_t rows = 0;
  for (const auto& crossover : analysis.crossovers) {
    if (!crossover.length) continue;
    ++rows;
    const bool other_first = crossover.other_needs_less_at_first;
    const auto &after = other_first ? *crossover.one : *crossover.other,
               &before = other_first ? *crossover.other : *crossover.one;
    const auto& interval = crossover.interval;
    const auto named = [&](const Series& s) {
      return crossover.differs == std::vector<std::string>{"method"}
                 ? s.method
                 : s.method + " (" + SeriesNames::of(s, crossover.differs) + ")";
    };
    table.add_row({named(after), length_text(*crossover.length), length_text(interval.low) + " … " + length_text(interval.high),
                   named(before), crossover.quantity, names.setting(after, crossover.differs)});
  }
  const std::string title = "Crossovers: the first length from which one needs less than the other";
  if (rows > 0) print_section(title, table, format);
  else
    fmt::print("{}\nnone: the one that needs less at the shortest length needs less at every length\n\n", heading(title, format));
}

void print_break_even(const Analysis& analysis, const SeriesNames& names) {
  for (const auto& crossover : analysis.crossovers) {
    const auto& differs = crossover.differs;
    if (crossover.quantity != "time" || std::find(differs.begin(), differs.end(), "device") == differs.end()) continue;
    const auto& gpu = crossover.one->setting.at("device") == "cuda" ? *crossover.one : *crossover.other;
    const bool gpu_first = (&gpu == crossover.other) == crossover.other_needs_less_at_first;
    const auto where = names.setting(gpu, {"device"});
    print_text(fmt::format("break-even of {}{}: ", gpu.method, where.empty() ? "" : " (" + where + ")"));
    if (crossover.length)
      fmt::print("the {} is faster from N = {} on (95 %: {} … {})\n", gpu_first ? "CPU" : "GPU", length_text(*crossover.length),
                 length_text(crossover.interval.low), length_text(crossover.interval.high));
    else fmt::print("the {} is faster at every length\n", gpu_first ? "GPU" : "CPU");
  }
}

void print_fits(const Analysis& analysis, const SeriesNames& names, Format format) {
  TextTable table;
  for (const auto* header : {"method", "setting", "budget"}) table.add_column(header);
  table.add_column("longest N", TextTable::Align::right);
  table.add_column("limited by");
  for (const auto& fit : analysis.fits)
    table.add_row({fit.series->method, names.setting(*fit.series), format_bytes(fit.budget_bytes),
                   fit.longest ? std::to_string(*fit.longest) : "–", fit.limit});
  print_section("Longest N within a memory budget", table, format);
}

}  // namespace

Run add_analyse_command(Command& command) {
  struct Options {
    std::string folder;
    std::vector<std::string> memory = {"11 GiB", "24 GiB"};
    Format format = Format::text;
  };
  const auto options = std::make_shared<Options>();
  add_records_argument(command, "folder", options->folder);
  command.add("--memory", &options->memory, "memory budgets; for each the longest sequence that fits is found",
              {.placeholder = "SIZES", .separator = ','});
  add_format_option(command, options->format, {Format::text, Format::markdown, Format::json});
  add_former_format_flag(command, options->format, Format::json);
  command.add_example("analyse results/figure1/*/",
                      "shows how time and memory grow, from which length on a method needs less than another, "
                      "and which lengths fit in 11 and 24 GiB");
  return [options](const WorkerProgram& worker) {
    const auto records = read_records(options->folder);
    std::vector<double> budgets;
    for (const auto& budget : options->memory) {
      try {
        budgets.push_back(double(parse_bytes(budget)));
      } catch (const std::invalid_argument& error) {
        throw UsageError(fmt::format("--memory: {}", error.what()));
      }
    }
    const auto analysis = analyse(records, Catalogue::load(worker).methods(), budgets);
    if (options->format == Format::json) {
      print_json(analysis.to_json());
      return exit_code::success;
    }
    const SeriesNames names(analysis.series);
    print_orders(analysis, names, options->format);
    print_crossovers(analysis, names, options->format);
    print_break_even(analysis, names);
    print_fits(analysis, names, options->format);
    fmt::print("Implausible records: {}\n", analysis.implausible.empty() ? "none" : "");
    for (const auto* record : analysis.implausible)
      print_text(fmt::format("  {}: {}\n", record->key(), record->text("implausible")));
    return exit_code::success;
  };
}

}  // namespace attnbench
