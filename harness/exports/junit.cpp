// Reads JSON of the gate and of `verify`, and writes their cases as elements of XML.
#include "harness/exports/junit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "harness/files/text_file.h"
#include "harness/schema/json.h"
#include "harness/statistics/statistics.h"
#include "harness/text/errors.h"
#include "harness/text/safe_text.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

constexpr size_t kLongestReport = 256u << 20;

// Text as XML shows it. U+FFFE and U+FFFF are no characters in XML 1.0.
std::string xml_text(const std::string& text, LineEnds line_ends) {
  std::string escaped;
  const auto safe = safe_text(text, line_ends);
  for (size_t i = 0; i < safe.size(); ++i) {
    if (safe.compare(i, 3, "\xEF\xBF\xBE") == 0 || safe.compare(i, 3, "\xEF\xBF\xBF") == 0) {
      escaped += "\xEF\xBF\xBD";
      i += 2;
    } else if (safe[i] == '<') {
      escaped += "&lt;";
    } else if (safe[i] == '>') {
      escaped += "&gt;";
    } else if (safe[i] == '&') {
      escaped += "&amp;";
    } else if (safe[i] == '"') {
      escaped += "&quot;";
    } else {
      escaped += safe[i];
    }
  }
  return escaped;
}

std::string attribute(const char* name, const std::string& value) {
  return fmt::format(" {}=\"{}\"", name, xml_text(value, LineEnds::replaced));
}

struct TestCase {
  enum class Result { passed, failure, error, skipped };
  std::string name;
  Result result = Result::passed;
  std::string type = {}, message = {};  // of a case that did not pass
  std::string text = {};                // lines
};

struct TestSuite {
  std::string name, timestamp = {};
  std::vector<std::pair<std::string, std::string>> properties = {};
  std::vector<TestCase> cases = {};
  int64_t count(TestCase::Result result) const {
    return std::count_if(cases.begin(), cases.end(), [&](const TestCase& c) { return c.result == result; });
  }
};

std::string xml_of(const TestCase& test, const std::string& class_name) {
  auto xml = fmt::format("  <testcase{}{}>\n", attribute("classname", class_name), attribute("name", test.name));
  const auto text = xml_text(test.text, LineEnds::kept);
  const auto message = attribute("message", test.message);
  switch (test.result) {
    case TestCase::Result::failure:
      xml += fmt::format("   <failure{}{}>{}</failure>\n", attribute("type", test.type), message, text);
      break;
    case TestCase::Result::error:
      xml += fmt::format("   <error{}{}>{}</error>\n", attribute("type", test.type), message, text);
      break;
    case TestCase::Result::skipped: xml += fmt::format("   <skipped{}/>\n", message); [[fallthrough]];
    case TestCase::Result::passed:
      if (!text.empty()) xml += fmt::format("   <system-out>{}</system-out>\n", text);
  }
  return xml + "  </testcase>\n";
}

std::string xml_of(const TestSuite& suite) {
  using Result = TestCase::Result;
  auto xml =
      fmt::format(" <testsuite{} tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"{}>\n", attribute("name", suite.name),
                  suite.cases.size(), suite.count(Result::failure), suite.count(Result::error), suite.count(Result::skipped),
                  suite.timestamp.empty() ? "" : attribute("timestamp", suite.timestamp));
  if (!suite.properties.empty()) {
    xml += "  <properties>\n";
    for (const auto& [name, value] : suite.properties)
      xml += fmt::format("   <property{}{}/>\n", attribute("name", name), attribute("value", value));
    xml += "  </properties>\n";
  }
  for (const auto& test : suite.cases) xml += xml_of(test, suite.name);
  return xml + " </testsuite>\n";
}

// A member of a JSON object that a user names, whose type is checked.
class Reader {
 public:
  // `where` names the file, and what of it the object is.
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw UsageError(fmt::format("{} is no object, expected one", where_));
  }
  std::string text(const char* name) const {
    const auto value = optional_text(name);
    if (!value) fail(name, "text");
    return *value;
  }
  // Nothing for null and for a member that is missing.
  std::optional<std::string> optional_text(const char* name) const {
    const auto& value = get(name);
    if (value.is_null()) return {};
    if (!value.is_string()) fail(name, "text");
    return value.get<std::string>();
  }
  bool boolean(const char* name) const {
    if (!get(name).is_boolean()) fail(name, "true or false");
    return get(name).get<bool>();
  }
  // NaN for null and for a member that is missing.
  double number(const char* name) const {
    const auto& value = get(name);
    if (value.is_null()) return std::nan("");
    if (!value.is_number()) fail(name, "a number or null");
    return value.get<double>();
  }
  std::vector<double> numbers(const char* name) const {
    const auto& value = get(name);
    if (!value.is_array() || !std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_number(); }))
      fail(name, "a list of numbers");
    return value.get<std::vector<double>>();
  }
  // Ends that are null, as those of an interval from too few values, are NaN.
  Interval interval(const char* name) const {
    const auto& value = get(name);
    if (!value.is_array() || value.size() != 2) fail(name, "two numbers");
    for (const auto& end : value)
      if (!end.is_number() && !end.is_null()) fail(name, "two numbers");
    const auto end = [&](size_t i) { return value[i].is_null() ? std::nan("") : value[i].get<double>(); };
    return {end(0), end(1)};
  }
  const Json& get(const char* name) const {
    static const Json null;
    const auto found = object_.find(name);
    return found == object_.end() ? null : *found;
  }
  [[noreturn]] void fail(const char* name, const char* expected) const {
    throw UsageError(fmt::format("{}: '{}' is {}, expected {}", safe_text(where_), name,
                                 shortened(get(name).dump(-1, ' ', true, Json::error_handler_t::replace), 60), expected));
  }

 private:
  const Json& object_;
  std::string where_;
};

std::string percent_of(double log_ratio) {
  return std::isfinite(log_ratio) ? fmt::format("{:+.1f} %", 100 * std::expm1(log_ratio)) : "unknown";
}

// ------------------------------------------------------------ gate

// The median of a side's processes, such as "base: 10.2 ms, the median of 12 processes". A benchmark of a command has a unit.
std::string side_line(const char* side, const std::vector<double>& values, bool instructions, const std::string& unit) {
  if (values.empty()) return fmt::format("{}: not measured\n", side);
  const auto middle = median(values);
  const auto text = unit == "s"       ? format_ms(middle * 1e3, 4)
                    : unit == "bytes" ? format_bytes(middle)
                    : !unit.empty()   ? fmt::format("{:.4g} {}", middle, unit)
                    : instructions    ? fmt::format("{:.6g} instructions", middle)
                                      : format_ms(middle, 4);
  return fmt::format("{}: {}, the median of {}\n", side, text, count_of(values.size(), "process"));
}

TestCase gate_case(const Reader& report, const Reader& of_case) {
  const auto name = of_case.text("name"), verdict = of_case.text("verdict");
  const auto reason = of_case.optional_text("reason"), waived = of_case.optional_text("waived");
  const auto interval = of_case.interval("interval");
  const auto unit = of_case.optional_text("unit").value_or("");
  const bool instructions = unit.empty() && report.text("measure") != "time";
  const auto base = of_case.numbers("base"), candidate = of_case.numbers("candidate");
  const auto base_bytes = of_case.numbers("base_peak_extra_bytes"), bytes = of_case.numbers("candidate_peak_extra_bytes");

  TestCase test{.name = name, .type = verdict};
  std::string change;
  if (!base.empty() && !candidate.empty()) {
    change = percent_of(of_case.number("log_ratio"));
    if (!instructions)
      change += std::isfinite(interval.low) && std::isfinite(interval.high)
                    ? fmt::format(", 95 % interval {} to {}", percent_of(interval.low), percent_of(interval.high))
                    : ", too few pairs for an interval";
    test.text = fmt::format("change: {}\n", change);
    test.text += side_line("base", base, instructions, unit) + side_line("candidate", candidate, instructions, unit);
    if (!instructions)
      test.text += fmt::format(
          "p values: slower by at most {0:.3g} %: {1:.2g}, faster by at most {0:.3g} %: {2:.2g}, slower by {3:.3g} % or more: "
          "{4:.2g}\n",
          100 * report.number("min_shift"), of_case.number("slower_p"), of_case.number("faster_p"), 100 * report.number("margin"),
          of_case.number("margin_p"));
  }
  if (!base_bytes.empty() && !bytes.empty())
    test.text += fmt::format("memory: base {}, candidate {}\n", format_bytes(median(base_bytes)), format_bytes(median(bytes)));

  const bool in_memory = verdict.ends_with(", regression in memory"), memory_too = verdict == "regression, memory too";
  const auto kind = verdict.substr(0, verdict.find(','));
  const auto known = {"pass", "improvement", "regression", "inconclusive", "not decided", "unusable", "new"};
  if (std::find(known.begin(), known.end(), kind) == known.end() || (kind != verdict && !in_memory && !memory_too))
    of_case.fail("verdict", "a verdict of the gate");
  if ((in_memory || memory_too) && (base_bytes.empty() || bytes.empty()))
    of_case.fail("candidate_peak_extra_bytes", "numbers of both sides, because the verdict is about memory");
  if (waived) {
    test.result = TestCase::Result::skipped;
    test.message = fmt::format("{}, waived: {}", verdict, *waived);
  } else if (kind == "regression" || in_memory) {
    test.result = TestCase::Result::failure;
    if (kind == "regression") test.message = instructions ? "more instructions: " + change : "slower: " + change;
    if (in_memory || memory_too)
      test.message += fmt::format("{}more memory: {} instead of {}", test.message.empty() ? "" : "; ",
                                  format_bytes(median(bytes)), format_bytes(median(base_bytes)));
  } else if (kind == "unusable") {
    test.result = TestCase::Result::error;
    test.message = reason.value_or("");
  } else if (kind == "new") {
    test.result = TestCase::Result::skipped;
    test.message = "new: " + reason.value_or("");
  } else if (kind != "pass" && kind != "improvement") {
    test.result = TestCase::Result::skipped;
    test.message = "not decided" + (change.empty() ? ": not measured" : ": " + change);
  }
  return test;
}

TestSuite gate_suite(const Json& json, const std::string& path) {
  const Reader report(json, path);
  TestSuite suite{.name = "attnbench.gate", .timestamp = report.optional_text("finished_at").value_or("")};
  if (suite.timestamp.ends_with('Z')) suite.timestamp.pop_back();  // which the schema of JUnit does not take
  suite.properties.emplace_back("result", report.text("result"));
  for (const auto* side : {"base", "candidate"}) {
    const Reader of_side(report.get(side), fmt::format("{}: '{}'", path, side));
    for (const auto* name : {"revision", "cpu_model"})
      if (const auto value = of_side.optional_text(name)) suite.properties.emplace_back(fmt::format("{}.{}", side, name), *value);
    if (const auto& source = of_side.get("source"); !source.is_null())
      suite.properties.emplace_back(fmt::format("{}.commit", side),
                                    Reader(source, fmt::format("{}: the source of '{}'", path, side)).text("commit"));
  }
  if (!report.get("cases").is_array()) report.fail("cases", "a list");
  for (size_t i = 0; i < report.get("cases").size(); ++i)
    suite.cases.push_back(gate_case(report, Reader(report.get("cases")[i], fmt::format("{}: case {}", path, i + 1))));
  return suite;
}

// ------------------------------------------------------------ verify

TestSuite verify_suite(const Json& json, const std::string& path) {
  TestSuite suite{.name = "attnbench.verify"};
  for (size_t i = 0; i < json.size(); ++i) {
    const Reader row(json[i], fmt::format("{}: row {}", path, i + 1));
    const auto verdict = row.text("verdict");
    TestCase test{.name = fmt::format("{} {} {} key_lengths={}", row.text("method"), row.text("dtype"),
                                      row.boolean("causal") ? "causal" : "not causal", row.text("key_lengths"))};
    for (const auto* error : {"value_error", "gradient_error", "decoding_error", "error_tolerance"})
      if (const auto value = row.number(error); !std::isnan(value)) test.text += fmt::format("{}: {:.3g}\n", error, value);
    if (const auto& failed = row.get("failed_case"); !failed.is_null()) {
      test.result = TestCase::Result::failure;
      test.type = "disagrees";
      test.message = verdict;
      test.text += "failed case: " + failed.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    } else if (verdict != "agrees") {
      if (!verdict.starts_with("unsupported") && !verdict.starts_with("unverified")) row.fail("verdict", "a verdict of verify");
      test.result = TestCase::Result::skipped;
      test.message = verdict;
    }
    suite.cases.push_back(std::move(test));
  }
  return suite;
}

TestSuite suite_of(const std::string& given) {
  const auto path = std::filesystem::is_directory(given) ? (std::filesystem::path(given) / "gate.json").string() : given;
  Json json;
  try {
    json = parse_json(read_text_file(path, kLongestReport));
  } catch (const JsonError& error) {
    throw UsageError(fmt::format("{}: {}, expected the JSON of `gate --out` or `verify --format json`", path, error.what()));
  }
  if (json.is_array() && !json.empty()) return verify_suite(json, path);
  if (json.is_object() && json.contains("cases")) return gate_suite(json, path);
  throw UsageError(fmt::format("{} has no verdicts, expected the JSON of `gate --out` or `verify --format json`", path));
}

}  // namespace

std::string junit_of(const std::vector<std::string>& paths) {
  std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const auto& path : paths) xml += xml_of(suite_of(path));
  return xml + "</testsuites>\n";
}

}  // namespace attnbench
