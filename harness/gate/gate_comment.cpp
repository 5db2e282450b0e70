// Writes the comment in Markdown. Texts that come from users are escaped.
#include "harness/gate/gate_comment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>
#include <sstream>

#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

// GitHub takes comments of at most 65,536 characters. With these limits a comment has at most 25 lines, 15 of them besides the
// rows of the table, and fewer characters than that.
constexpr size_t kMostRows = 10, kLongestCell = 200, kMostOfWaivers = 16384;
// The limits for the message of an error.
constexpr size_t kMostLinesOfError = 15, kLongestLineOfError = 500;

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
  return fmt::format(
      "commit {}{}{}", code(side.source.at("commit").get<std::string>().substr(0, 12)),
      side.source.at("uncommitted_changes").get<bool>() ? " with uncommitted changes" : "",
      lacking.empty() ? "" : ", without " + markdown_text(shortened(fmt::format("{}", fmt::join(lacking, ", ")), kLongestCell)));
}

std::vector<size_t> all_lines(const GateReport& report) {
  std::vector<size_t> lines(report.lines.size());
  std::iota(lines.begin(), lines.end(), size_t{0});
  return lines;
}

// How a case ended, in the order of importance.
enum class Ending { slower, unusable, open, faster, waived, fresh, passed };
Ending ending_of(const GateReport::Line& line) {
  if (!line.waived.empty()) return Ending::waived;
  if (line.failed) return Ending::slower;
  if (line.is_unusable) return Ending::unusable;
  if (line.is_new) return Ending::fresh;
  if (line.judgement.verdict == Verdict::inconclusive) return Ending::open;
  return line.judgement.verdict == Verdict::improvement ? Ending::faster : Ending::passed;
}

// The lines in the order of their ending and, among slower or faster cases, of the size of the change.
std::vector<size_t> by_importance(const GateReport& report) {
  auto lines = all_lines(report);
  std::stable_sort(lines.begin(), lines.end(), [&](size_t a, size_t b) {
    const auto &x = report.lines[a], &y = report.lines[b];
    if (ending_of(x) != ending_of(y)) return ending_of(x) < ending_of(y);
    const bool is_change = ending_of(x) == Ending::slower || ending_of(x) == Ending::faster;
    return is_change && std::abs(x.judgement.ratio.estimate) > std::abs(y.judgement.ratio.estimate);
  });
  return lines;
}

// Such as "1 is slower or needs more memory, 3 pass".
std::string counts_of(const GateReport& report, const std::vector<size_t>& lines) {
  const std::pair<Ending, std::pair<const char*, const char*>> words[] = {
      {Ending::slower, {"is slower or needs more memory", "are slower or need more memory"}},
      {Ending::unusable, {"cannot be compared", "cannot be compared"}},
      {Ending::open, {"is not decided", "are not decided"}},
      {Ending::faster, {"is faster", "are faster"}},
      {Ending::waived, {"is waived", "are waived"}},
      {Ending::fresh, {"is new", "are new"}},
      {Ending::passed, {"passes", "pass"}}};
  std::string text;
  for (const auto& [ending, forms] : words) {
    const auto count = std::count_if(lines.begin(), lines.end(),
                                     [&, wanted = ending](size_t i) { return ending_of(report.lines[i]) == wanted; });
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, count == 1 ? forms.first : forms.second);
  }
  return text;
}

// The report with long texts cut, so that no row of a table is long.
GateReport short_report(GateReport report) {
  for (auto& line : report.lines)
    for (auto* text : {&line.label, &line.reason, &line.waived}) *text = shortened(safe_text(*text), kLongestCell);
  return report;
}

// About how many pairs a case that n pairs left open would need: the interval becomes shorter with the square root of their
// number, and has to end on one side of min_shift or of the margin. NaN where no number would do.
double pairs_to_decide(const GateReport::Line& line, const Criteria& criteria) {
  const auto& [estimate, interval] = line.judgement.ratio;
  const double reach = (interval.high - interval.low) / 2;
  const double distance = std::max(estimate - std::log1p(criteria.min_shift), std::log1p(criteria.margin) - estimate);
  if (!std::isfinite(reach) || !(distance > 0) || line.processes == 0) return std::nan("");
  // One more look has a smaller share of the level, and the estimate is itself uncertain, so at least half as many more are
  // needed.
  return std::ceil(double(line.processes) * std::max(1.5, reach * reach / (distance * distance)));
}

// What was not decided, and how long it would take.
std::string open_in_words(const GateReport& report, const GateOptions& options) {
  const auto& lines = report.lines;
  const auto open = std::count_if(lines.begin(), lines.end(), [](const auto& line) { return ending_of(line) == Ending::open; });
  if (open == 0) return "";
  auto text = fmt::format("{} {} not decided", count_of(open, "case"), is_or_are(open));
  if (options.plan.is_quick)
    return text + (std::isnan(report.full_gate_s)
                       ? "; a full gate, without --quick, has no time limit."
                       : fmt::format("; a full gate, without --quick, takes at most {}.", format_seconds(report.full_gate_s)));
  if (std::isnan(report.pair_s)) return text + ", because nothing was measured.";
  constexpr double kMostPairs = 10'000;
  double most = 0;
  for (const auto& line : lines) {
    if (ending_of(line) != Ending::open) continue;
    const double pairs = pairs_to_decide(line, options.plan.criteria);
    most = std::max(most, std::isnan(pairs) ? kMostPairs + 1 : pairs);
  }
  if (most > kMostPairs) return text + "; the noise is too large to say how many pairs would do.";
  const double pairs = report.pair_is_of_all_cases
                           ? most
                           : most * double(open) + double(options.plan.looks.front()) * double(lines.size() - size_t(open));
  const double seconds = report.pair_s * pairs;
  return text + fmt::format("; about {:.0f} pairs would probably do (`--looks {},{:.0f}`), which take about {}.", most,
                            fmt::join(options.plan.looks, ","), most, format_seconds(seconds));
}

// The cases that the table does not show, and what was not decided, as one paragraph.
std::string rest_in_words(const GateReport& report, const std::vector<size_t>& rest, const GateOptions& options) {
  auto text = rest.empty() ? ""
                           : fmt::format("Of the {} that the table does not show, {}.", count_of(rest.size(), "case"),
                                         counts_of(report, rest));
  if (const auto open = open_in_words(report, options); !open.empty()) text += (text.empty() ? "" : " ") + open;
  return text;
}

// The lines that accept the regressions, as HTML on one line, in which the line ends are &#10;.
std::string waivers_of(const GateReport& report) {
  std::string tables;
  size_t left_out = 0;
  for (const auto& line : report.lines) {
    if (!line.failed) continue;
    const auto table = html_text(safe_text(fmt::format("[[waive]]\ncase = {}\nreason = \"WHY\"\n",
                                                       Json(line.name).dump(-1, ' ', false, Json::error_handler_t::replace)),
                                           LineEnds::kept));
    if (tables.size() + table.size() > kMostOfWaivers) ++left_out;
    else tables += table;
  }
  if (tables.empty()) return "";
  std::string text =
      "<details><summary>To accept this knowingly, write these lines with your reason into the file of --waivers</summary><pre>";
  for (const char c : tables) text += c == '\n' ? std::string("&#10;") : std::string(1, c);
  return text + "</pre>" + (left_out > 0 ? fmt::format("{} more {} left out.", left_out, is_or_are(left_out)) : "") +
         "</details>";
}

}  // namespace

std::string comment_of(const GateReport& report, const GateSuite& suite, const GateOptions& options,
                       const std::string& suite_name, const std::string& base) {
  const auto &before = suite.sides()[0], &after = suite.sides()[1];
  const auto waivers = waivers_of(report);
  auto text = marker_of(suite_name) + "\n";
  text += fmt::format("### attnbench gate: {}\n\n", result_name(report.result));
  text += fmt::format("{} {} {}, compared with {}. {}: {}{}.\n\n", result_in_words(report.result, options.plan),
                      suite.source_name() == "suite" ? "Suite" : "Command", code(shortened(suite_name, kLongestCell)),
                      code(shortened(base, kLongestCell)), count_of(report.lines.size(), "case"),
                      counts_of(report, all_lines(report)),
                      report.shared.empty() ? "" : "; all of them " + markdown_text(shortened(report.shared, kLongestCell)));
  const auto lines = by_importance(report);
  const auto shown = std::min(lines.size(), kMostRows);
  text += table_of(short_report(report), suite, {lines.begin(), lines.begin() + std::ptrdiff_t(shown)}, true)
              .render(TableFormat::markdown);
  text += "\n";
  if (const auto rest = rest_in_words(report, {lines.begin() + std::ptrdiff_t(shown), lines.end()}, options); !rest.empty())
    text += rest + "\n\n";
  const auto explanation = explanation_of(suite, options);
  text += fmt::format(
      "The base is {}, the candidate is {}. Measured on {} ({}){}. {}\n", side_in_words(before), side_in_words(after),
      markdown_text(shortened(after.environment.text("cpu_model"), kLongestCell)),
      count_of(int64_t(after.environment.number("processors")), "processor"),
      after.environment.has("torch_version")
          ? " with torch " + markdown_text(shortened(after.environment.text("torch_version"), kLongestCell))
          : ", measure " + code(suite.what_is_measured()),
      explanation.empty()
          ? markdown_text(fmt::format("instructions of {} calls on one thread, by callgrind, on the AVX2 kernels", kCountedCalls))
          : explanation);
  if (!waivers.empty()) text += "\n" + waivers + "\n";
  text += fmt::format(
      "\n<details><summary>What the columns mean</summary><code>change</code> estimates from the ratios of the pairs how much "
      "slower the candidate is. <code>base</code> and <code>candidate</code> are the medians of the processes of each side, "
      "adjusted to this change: one is multiplied, and the other divided, by one factor. A case that needs over {:.3g} % more "
      "memory is a regression, too. A new case has no counterpart in the base.</details>\n",
      100 * options.memory_shift);
  return text;
}

std::string comment_of_error(const std::string& message, const std::string& suite_name) {
  std::istringstream lines(html_text(safe_text(message, LineEnds::kept)));
  std::string text;
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    if (count < kMostLinesOfError) text += (count > 0 ? "\n" : "") + shortened(line, kLongestLineOfError);
  if (count > kMostLinesOfError)
    text += fmt::format("\n({} {} left out.)", count_of(count - kMostLinesOfError, "further line"),
                        is_or_are(count - kMostLinesOfError));
  return fmt::format("{}\n### attnbench gate: error\n\nThe gate of {} could not run:\n\n<pre>\n{}\n</pre>\n",
                     marker_of(suite_name), code(shortened(suite_name, kLongestCell)), text);
}

}  // namespace attnbench
