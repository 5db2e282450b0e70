// `attnbench measure`: measures one case, which options describe, and prints its record.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <utility>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/rendering/case_names.h"
#include "harness/cli/rendering/record_table.h"
#include "harness/cli/shared_options.h"
#include "harness/schema/model_shapes.h"
#include "harness/sweep/case_plans.h"
#include "harness/sweep/case_runner.h"
#include "harness/sweep/catalogue.h"
#include "harness/sweep/prediction.h"
#include "harness/text/errors.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

struct MeasureOptions {
  Case c;
  std::string like;
  Format format = Format::text;
  bool verbose = false, forked = false;
};

std::string option_name(const Field& field) {
  auto name = "--" + std::string(field.name);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// Replaces the names of fields in a message, such as "query_len = 0, expected at least 1", by the names of their options.
std::string with_option_names(std::string message) {
  for (const auto& field : fields()) {
    const auto written = std::string(field.name) + " = ";
    const auto at = message.find(written);
    const bool is_whole_word = at == 0 || (at != std::string::npos && message[at - 1] == ' ');
    if (is_whole_word && field.name != "method") message.replace(at, field.name.size(), option_name(field));
  }
  return message;
}

// `completed` has the values that Case::complete() puts in place of defaults.
void add_field_option(Command& command, const std::shared_ptr<MeasureOptions>& options, const Case& completed,
                      const Field& field) {
  const std::string description(field.description);
  if (field.name == "method")
    return command.add("method", &options->c.method, description, {.required = true, .completion = Completion::methods});
  if (const auto* flag = std::get_if<bool Case::*>(&field.member))
    return command.add(option_name(field), &(options->c.*(*flag)), description);

  const bool is_memory = field.unit == "B";
  const auto take = [options, &field, is_memory](const std::string& text) {
    const auto value = is_memory ? std::to_string(parse_bytes(text)) : text;
    try {
      set_text(options->c, field, value);
    } catch (const std::invalid_argument& error) {  // names the field
      throw UsageError(with_option_names(error.what()));
    }
  };
  OptionTraits traits{.hidden = field.test_hook};
  if (!field.also_number) traits.choices = {field.choices.begin(), field.choices.end()};
  // A default that the machine or another option replaces is not shown; the description says what it stands for.
  const auto value = get(options->c, field);
  if (value == get(completed, field))
    traits.default_text = value.is_number() ? fmt::format("{:g}", value.get<double>()) : plain_text(value);
  if (is_memory) traits.placeholder = "SIZE";
  else if (std::holds_alternative<int64_t Case::*>(field.member)) traits.placeholder = "N";
  else if (std::holds_alternative<double Case::*>(field.member)) traits.placeholder = "NUMBER";
  if (!is_memory) traits.unit = field.unit;
  if (!is_memory && !std::holds_alternative<std::string Case::*>(field.member)) traits.min = field.min;
  command.add(option_name(field), take, description, std::move(traits));
}

void check_baseline(const Case& c, const Catalogue& catalogue) {
  try {
    if (const auto baseline = baseline_of(c)) catalogue.check(baseline->method);
  } catch (const std::invalid_argument& error) {
    throw UsageError(with_option_names(error.what()));
  }
}

// Plans and runs one case. A case that would take longer than its deadline is not skipped, because without measured ceilings its
// predicted time is only a rough lower bound; a case that needs too much memory is.
Record measure_case(const WorkerProgram& own, const Case& c) {
  const auto worker = worker_for(own, {c});
  Record planned;
  try {
    planned = plan_cases(worker, {c})[0];
  } catch (const UsageError& error) {
    throw UsageError(with_option_names(error.what()));
  }
  if (!planned.has("outcome") && predicted_need_bytes(planned) > planned.number("memory_limit_bytes"))
    predict(planned, TimePredictor(Ceilings::nominal(c.threads)));
  return run_case(worker, {{c, planned}, plan_baselines(worker, {c})[0]}, ask_environment(own), std::nullopt);
}

// What one call of the measured case did in a second: operations and memory traffic by the method's cost, and tokens. Empty where
// there is no time.
std::string rates_in_words(const Record& record) {
  const auto call_s = record.number("time_median_ms") / 1e3;
  if (!(call_s > 0)) return "";
  std::string text;
  const auto add = [&](const char* bound, double amount, const char* unit) {
    if (!std::isnan(amount))
      text += fmt::format("{}{}{} {}", text.empty() ? "" : ", ", bound, format_rounded(amount / call_s), unit);
  };
  add("", record.number("flops") / 1e9, "GFLOP/s");  // NaN where a method does not say how many operations it takes
  add("at least ", record.number("min_bytes") / 1e9, "GB/s");
  // A decoding step takes in one token of each sequence.
  const auto tokens = record.number("batch") * (record.text("protocol") == "decode" ? 1 : record.number("query_len"));
  add("", tokens, "tokens/s");
  return text;
}

// The answer to the measurement of one case: what was measured, and what came out.
Sheet answer_with_case(const Record& record) {
  Sheet sheet = {{"", "case", case_in_words(record)}};
  for (auto& line : answer_of(record)) {
    const bool is_time = line.name == "time";
    sheet.push_back(std::move(line));
    if (!is_time) continue;
    if (auto rates = rates_in_words(record); !rates.empty()) sheet.push_back({"", "rate", std::move(rates)});
  }
  return sheet;
}

}  // namespace

Run add_measure_command(Command& command) {
  const auto options = std::make_shared<MeasureOptions>();
  auto completed = options->c;
  completed.complete();
  // Declared before the options of the axes, which then replace what the shape has set.
  command.add("--shape",
              [options](const std::string& name) {
                try {
                  for (const auto& [axis, value] : axes_of(find_model_shape(name))) set(options->c, *find_field(axis), value);
                } catch (const std::invalid_argument& error) {  // begins with "shape = "
                  throw UsageError(std::string("--") + error.what());
                }
              },
              "heads, dimensions and pattern of a released model, see `attnbench list shapes`; options of these axes override it",
              {.placeholder = "MODEL"});
  for (const auto& field : fields()) add_field_option(command, options, completed, field);
  add_like_option(command, options->like);
  add_format_option(command, options->format);
  command.add("--verbose", &options->verbose, "print every value of the record that is no list", {.short_name = "-v"});
  add_forked_option(command, options->forked);
  command.add_example("measure linear --query-len 4096 --causal",
                      "measures one forward pass of linear attention over 4096 tokens");
  command.add_example("measure mine.py:attention --like softmax",
                      "measures the function attention of the file mine.py, after comparing it with softmax attention");
  return [options](WorkerProgram worker) {
    worker.forks = options->forked;
    const auto catalogue = Catalogue::load(worker);
    options->c.method = catalogue.with_like(options->c.method, options->like);
    options->c.complete();
    check_baseline(options->c, catalogue);
    const auto record = measure_case(worker, options->c);
    if (options->format == Format::json) print_json(record.to_json(), /*indent=*/-1);
    else if (options->format == Format::csv) print_records({record}, Format::csv, Rows::all);
    else print_sheet(options->verbose ? sheet_of(record) : answer_with_case(record), options->format);
    return record.text("outcome") == outcome::failed ? exit_code::failure : exit_code::success;
  };
}

}  // namespace attnbench
