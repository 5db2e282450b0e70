#include "harness/cli/shared_options.h"

#include <map>
#include <string>

namespace attnbench {

void add_format_option(CLI::App& command, TableFormat& format) {
  const std::map<std::string, TableFormat> formats{
      {"text", TableFormat::text}, {"markdown", TableFormat::markdown}, {"csv", TableFormat::csv}};
  command.add_option("--format", format, "text, markdown or csv")->transform(CLI::CheckedTransformer(formats));
}

void add_criteria_options(CLI::App& command, Criteria& criteria) {
  command.add_option("--alpha", criteria.alpha, "false alarms of all cases together")->check(CLI::Range(0.0, 1.0));
  command.add_option("--min-shift", criteria.min_shift, "a smaller slowdown is none")->check(CLI::NonNegativeNumber);
  command.add_option("--margin", criteria.margin, "a case has passed when a larger slowdown is excluded")
      ->check(CLI::NonNegativeNumber);
}

}  // namespace attnbench
