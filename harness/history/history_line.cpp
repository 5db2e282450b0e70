// Writes and reads lines of a history.
#include "harness/history/history_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <stdexcept>

#include "harness/exports/utc_dates.h"
#include "harness/text/errors.h"
#include "harness/text/json_numbers.h"

namespace attnbench {
namespace {

constexpr size_t kLongestText = 4096;

std::string text_member(const Json& json, const char* name, bool may_be_empty = false) {
  const auto found = json.find(name);
  if (found == json.end() && may_be_empty) return "";
  if (found == json.end() || !found->is_string()) throw std::invalid_argument(fmt::format("no text '{}'", name));
  auto text = found->get<std::string>();
  if ((text.empty() && !may_be_empty) || text.size() > kLongestText)
    throw std::invalid_argument(fmt::format("'{}' has {} bytes, expected 1 to {}", name, text.size(), kLongestText));
  return text;
}

double interval_end(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null()) return std::nan("");
  if (!found->is_number() || !std::isfinite(found->get<double>()))
    throw std::invalid_argument(fmt::format("'{}' is no number", name));
  return found->get<double>();
}

HistoryLine line_of(const Json& json) {
  if (!json.is_object()) throw std::invalid_argument("no object");
  HistoryLine line;
  line.commit = text_member(json, "commit");
  const auto is_hex = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f'); };
  if ((line.commit.size() != 40 && line.commit.size() != 64) || !std::all_of(line.commit.begin(), line.commit.end(), is_hex))
    throw std::invalid_argument("'commit' is no full id of a commit");
  line.committed_at = text_member(json, "committed_at");
  seconds_since_1970(line.committed_at);
  line.subject = text_member(json, "subject", true);
  line.machine = text_member(json, "machine");
  line.name = text_member(json, "case");
  line.measure = text_member(json, "measure");
  line.unit = text_member(json, "unit", true);
  const auto better = json.find("more_is_better");
  if (better == json.end() || !better->is_boolean()) throw std::invalid_argument("'more_is_better' is not true or false");
  line.more_is_better = better->get<bool>();
  const auto value = json.find("value");
  line.value = value != json.end() && value->is_number() ? value->get<double>() : 0;
  if (!std::isfinite(line.value) || !(line.value > 0)) throw std::invalid_argument("'value' is no number above 0");
  line.low = interval_end(json, "low");
  line.high = interval_end(json, "high");
  line.measured_at = text_member(json, "measured_at", true);
  return line;
}

}  // namespace

std::string text_of(const HistoryLine& line) {
  const Json json = {{"commit", line.commit},
                     {"committed_at", line.committed_at},
                     {"subject", line.subject},
                     {"machine", line.machine},
                     {"case", line.name},
                     {"measure", line.measure},
                     {"unit", line.unit},
                     {"more_is_better", line.more_is_better},
                     {"value", line.value},
                     {"low", finite_or_null(line.low)},
                     {"high", finite_or_null(line.high)},
                     {"measured_at", line.measured_at}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<HistoryLine> read_history(std::string_view text, const std::string& where) {
  std::vector<HistoryLine> lines;
  size_t number = 1;
  for (size_t begin = 0, end = text.find('\n'); end != std::string_view::npos;
       begin = end + 1, end = text.find('\n', begin), ++number) {
    const auto one = text.substr(begin, end - begin);
    if (one.empty() || one == "\r") continue;
    try {
      lines.push_back(line_of(parse_json(one)));
    } catch (const std::exception& error) {
      throw UsageError(fmt::format("{}, line {}: no line of a history: {}; expected the lines of `attnbench history add`", where,
                                   number, error.what()));
    }
  }
  return lines;
}

}  // namespace attnbench
