// Writes the comment in Markdown, with the texts of others escaped.
#include "harness/gate/gate_comment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>

#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

// The line by which the comment is found again. Other characters than these could end an HTML comment, so they are written as
// numbers.
std::string marker_of(const std::string& suite_name) {
  std::string name;
  for (const char c : suite_name) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '/' || c == '_';
    name += is_plain ? std::string(1, c) : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  }
  return fmt::format("<!-- attnbench gate: {} -->", name);
}

std::string result_in_words(GateResult result, const GatePlan& plan) {
  switch (result) {
    case GateResult::pass:
      return fmt::format("No case was found slower or needs more memory, and a slowdown of {:.3g} % or more can be excluded.",
                         100 * plan.criteria.margin);
    case GateResult::regression: return "At least one case is slower or needs more memory.";
    case GateResult::inconclusive:
      return plan.is_quick ? "Not every case could be decided." : "The measurements are too noisy to decide.";
    case GateResult::unusable: return "At least one case cannot be compared.";
  }
  return "";
}

// Text between backquotes, which Markdown shows as it is.
std::string code(std::string text) {
  text = safe_text(text);
  for (auto& c : text)
    if (c == '`') c = '\'';
  return "`" + text + "`";
}

// The text as HTML shows it between <pre> and </pre>, where Markdown is not interpreted as long as no line is empty.
std::string html_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n' && escaped.ends_with('\n')) continue;
    if (c == '<') escaped += "&lt;";
    else if (c == '>') escaped += "&gt;";
    else if (c == '&') escaped += "&amp;";
    else escaped += c;
  }
  return escaped;
}

// What the side consists of, such as "commit `0123456789ab` with uncommitted changes".
std::string side_in_words(const Side& side) {
  if (side.source.is_null()) return "build " + code(side.environment.text("revision"));
  const auto lacking = side.source.at("lacking").get<std::vector<std::string>>();
  return fmt::format("commit {}{}{}", code(side.source.at("commit").get<std::string>().substr(0, 12)),
                     side.source.at("uncommitted_changes").get<bool>() ? " with uncommitted changes" : "",
                     lacking.empty() ? "" : ", without " + markdown_text(fmt::format("{}", fmt::join(lacking, ", "))));
}

}  // namespace

std::string comment_of(const GateReport& report, const GateSuite& suite, const GateOptions& options,
                       const std::string& suite_name, const std::string& base) {
  const auto explanation = explanation_of(suite, options);
  const auto &before = suite.sides()[0], &after = suite.sides()[1];
  auto text = marker_of(suite_name) + "\n";
  text += fmt::format("### attnbench gate: {}\n\n", result_name(report.result));
  text += fmt::format("{} Suite {}, compared with {}.\n\n", result_in_words(report.result, options.plan), code(suite_name),
                      code(base));
  text += findings_of(report, suite, options, {.format = TableFormat::markdown});
  text += fmt::format("The base is {}, the candidate is {}. Measured on {} ({}) with torch {}.\n", side_in_words(before),
                      side_in_words(after), markdown_text(after.environment.text("cpu_model")),
                      count_of(int64_t(after.environment.number("processors")), "processor"),
                      markdown_text(after.environment.text("torch_version")));
  text += fmt::format(
      "\n<details><summary>What the columns mean</summary>\n\n"
      "`change` estimates from the ratios of the pairs how much slower the candidate is. `base` and `candidate` are the medians "
      "of the processes of each side, adjusted to this change: one is multiplied, and the other divided, by one factor. {}A case "
      "that "
      "needs over {:.3g} % more memory is a regression, too. A new case has no counterpart in the "
      "base.\n\n</details>\n",
      explanation.empty() ? "" : explanation + " ", 100 * options.memory_shift);
  return text;
}

std::string comment_of_error(const std::string& message, const std::string& suite_name) {
  return fmt::format("{}\n### attnbench gate: error\n\nThe gate of the suite {} could not run:\n\n<pre>\n{}\n</pre>\n",
                     marker_of(suite_name), code(suite_name), html_text(safe_text(message, LineEnds::kept)));
}

}  // namespace attnbench
