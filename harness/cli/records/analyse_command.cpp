// `attnbench analyse`: prints growth, crossovers and the lengths that fit into memory.
#include <fmt/format.h>

#include <memory>

#include "harness/analysis/analysis.h"
#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/rendering/analysis_report.h"
#include "harness/cli/rendering/answers.h"
#include "harness/cli/rendering/case_names.h"
#include "harness/cli/rendering/record_charts.h"
#include "harness/cli/rendering/series_names.h"
#include "harness/cli/shared_options.h"
#include "harness/records/record_folders.h"
#include "harness/sweep/catalogue.h"
#include "harness/text/errors.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

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
    print_growth(analysis, names, options->all, options->format);
    print_crossovers(analysis, names, options->all, options->format);
    print_budget_fits(analysis, names, options->all, options->format);
    fmt::print("Implausible records: {}\n", analysis.implausible.empty() ? "none" : "");
    if (analysis.implausible.empty()) return exit_code::success;
    const CaseNames case_names(records);
    for (const auto* record : analysis.implausible)
      print_paragraph(fmt::format("- {}: {}", case_names.of(*record), record->text("implausible")));
    return exit_code::success;
  };
}

}  // namespace attnbench
