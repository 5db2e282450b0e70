#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"
#include "harness/cli/record_table.h"
#include "harness/cli/shared_options.h"
#include "harness/gate/gate_report.h"
#include "harness/process/interrupts.h"
#include "harness/records/result_folder.h"
#include "harness/statistics/comparison.h"
#include "harness/sweep/sweep_file.h"
#include "harness/text/errors.h"
#include "harness/text/json_numbers.h"
#include "harness/text/nearest.h"
#include "harness/text/notice.h"
#include "harness/text/text_table.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

struct Options {
  std::string a, b;
  std::vector<std::string> apart;
  Criteria criteria;
  Format format = Format::text;
};

// The records of one case on both sides. One of them may be missing.
struct Pair {
  const Record *a = nullptr, *b = nullptr;
  const Record& either() const { return a ? *a : *b; }
  bool both_measured() const { return a && b && a->measured() && b->measured(); }
};

// The key of the case without the axes in which the sides may differ.
std::string key_without(const Record& record, const std::vector<std::string>& apart) {
  auto axes = record.to_json();
  for (const auto& axis : apart) axes.erase(axis);
  return case_key(axes);
}

std::vector<Pair> pairs_of(const std::vector<Record>& a, const std::vector<Record>& b, const Options& options) {
  std::vector<Pair> pairs;
  std::map<std::string, size_t> index;
  const auto take = [&](const std::vector<Record>& records, const Record* Pair::*side, const std::string& name) {
    for (const auto& record : records) {
      const auto [place, is_new] = index.emplace(key_without(record, options.apart), pairs.size());
      if (is_new) pairs.emplace_back();
      auto& mine = pairs[place->second].*side;
      if (mine)
        throw UsageError(fmt::format("{} has several records that differ only in {}, expected one, for example for {}", name,
                                     fmt::join(options.apart, ", "), place->first));
      mine = &record;
    }
  };
  take(a, &Pair::a, options.a);
  take(b, &Pair::b, options.b);
  return pairs;
}

// The median of each process that measured the record.
std::vector<double> medians_of(const Record& record) {
  const auto& medians = record.get("process_medians_ms");
  if (!medians.is_array()) return {record.number("time_median_ms")};
  std::vector<double> found;
  for (const auto& value : medians)
    if (value.is_number()) found.push_back(value.get<double>());
  return found;
}

// The 95 % interval of log(b/a) from one process on each side. It tells whether these two processes differ, not whether the two
// sides do.
Interval within_processes(const Record& a, const Record& b) {
  const auto log_of = [](const Record& r, const char* column) { return std::log(r.number(column)); };
  const double middle = log_of(b, "time_median_ms") - log_of(a, "time_median_ms");
  const double below = std::hypot(log_of(b, "time_median_ms") - log_of(b, "time_ci_low_ms"),
                                  log_of(a, "time_ci_high_ms") - log_of(a, "time_median_ms"));
  const double above = std::hypot(log_of(b, "time_ci_high_ms") - log_of(b, "time_median_ms"),
                                  log_of(a, "time_median_ms") - log_of(a, "time_ci_low_ms"));
  return {middle - below, middle + above};
}

struct Compared {
  Pair pair;
  Judgement judgement;
  bool single = false;  // whether a side has only one process
  Interval interval;    // of log(b/a): across processes or, if `single`, within processes
};

std::string ratio_text(double log_ratio) { return std::isfinite(log_ratio) ? fmt::format("{:.3f}×", std::exp(log_ratio)) : "–"; }

std::string outcome_of(const Record* record) {
  if (!record) return "missing";
  if (record->has("external_source")) return "external";
  return record->measured() ? "measured" : record->text("failure_kind");
}

std::string verdict_of(const Compared& c) {
  if (!c.pair.both_measured()) return fmt::format("{} | {}", outcome_of(c.pair.a), outcome_of(c.pair.b));
  if (c.pair.a->has("external_source") || c.pair.b->has("external_source"))
    return fmt::format("{} | {}", outcome_of(c.pair.a), outcome_of(c.pair.b));
  return c.single ? "inconclusive: only one process on a side" : verdict_name(c.judgement.verdict);
}

// The axes, settings and other conditions of the measurement in which the sides differ, with the values of both sides.
std::vector<std::array<std::string, 3>> differing(const std::vector<Pair>& pairs) {
  std::vector<const Record*> records;
  for (const auto& pair : pairs)
    for (const auto* record : {pair.a, pair.b})
      if (record) records.push_back(record);
  std::vector<std::array<std::string, 3>> found;
  for (const auto& column : table_columns(records)) {
    if (!find_axis(column.name) && column.group != "environment" && column.group != "setting" &&
        column.name != "implementation" && column.name != "gpu" && column.name != "external_source")
      continue;
    std::set<std::string> a, b;
    bool differs = false;
    for (const auto& pair : pairs) {
      if (!pair.a || !pair.b) continue;
      const auto &left = pair.a->get(column.name), &right = pair.b->get(column.name);
      differs = differs || left != right;
      a.insert(left.is_null() ? "–" : plain_text(left));
      b.insert(right.is_null() ? "–" : plain_text(right));
    }
    if (differs) found.push_back({column.name, fmt::format("{}", fmt::join(a, ", ")), fmt::format("{}", fmt::join(b, ", "))});
  }
  return found;
}

std::vector<Compared> compared(const std::vector<Pair>& pairs, const Criteria& criteria) {
  std::vector<Compared> all;
  std::vector<TwoSides> sides;
  for (const auto& pair : pairs) {
    auto& c = all.emplace_back(Compared{pair, {}, false, {}});
    if (!pair.both_measured()) continue;
    sides.push_back({medians_of(*pair.a), medians_of(*pair.b)});
    c.single = std::min(sides.back().a.size(), sides.back().b.size()) < 2;
  }
  const auto judgements = judge(sides, criteria, throw_if_interrupted);
  size_t next = 0;
  for (auto& c : all) {
    if (!c.pair.both_measured()) continue;
    c.judgement = judgements[next++];
    c.interval = c.single ? within_processes(*c.pair.a, *c.pair.b) : c.judgement.ratio.interval;
  }
  return all;
}

// Says that some case has too few processes to be found different, and how many are needed; empty if all have enough.
std::string shortage_in_words(const std::vector<Compared>& all, const Criteria& criteria) {
  const auto cases = size_t(std::count_if(all.begin(), all.end(), [](const Compared& c) { return c.pair.both_measured(); }));
  size_t fewest = 0;
  for (const auto& c : all) {
    if (!c.pair.both_measured()) continue;
    const auto a = medians_of(*c.pair.a).size(), b = medians_of(*c.pair.b).size();
    if (!can_decide(a, b, cases, criteria.alpha) && (fewest == 0 || std::min(a, b) < fewest)) fewest = std::min(a, b);
  }
  if (fewest == 0) return "";
  return fmt::format("{} process{} a side cannot find any of {} case{} different at the level {:g}; at least {} are needed\n",
                     fewest, fewest == 1 ? "" : "es", cases, cases == 1 ? "" : "s", criteria.alpha,
                     processes_to_decide(cases, criteria.alpha));
}

Json json_of(const std::vector<Compared>& all, const std::vector<std::array<std::string, 3>>& differences, Verdict verdict) {
  Json json = {{"verdict", verdict_name(verdict)}, {"differences", Json::array()}, {"cases", Json::array()}};
  for (const auto& [column, a, b] : differences) json["differences"].push_back({{"column", column}, {"a", a}, {"b", b}});
  for (const auto& c : all) {
    Json axes;
    for (const auto& axis : axis_names()) axes[axis] = c.pair.either().get(axis);
    Json item = {{"case", axes}, {"a", outcome_of(c.pair.a)}, {"b", outcome_of(c.pair.b)}};
    if (c.pair.both_measured()) {
      item["a_ms"] = finite_or_null(c.pair.a->number("time_median_ms"));
      item["b_ms"] = finite_or_null(c.pair.b->number("time_median_ms"));
      item["log_ratio"] = finite_or_null(c.judgement.ratio.estimate);
      item["interval"] = json_of(c.interval);
      item["interval_scope"] = c.single ? "within process" : "across processes";
      item["adjusted_p"] = c.judgement.adjusted_p;
      item["a_peak_extra_bytes"] = c.pair.a->get("peak_extra_bytes");
      item["b_peak_extra_bytes"] = c.pair.b->get("peak_extra_bytes");
      item["verdict"] = verdict_name(c.judgement.verdict);
    }
    json["cases"].push_back(std::move(item));
  }
  return json;
}

void print_tables(const std::vector<Compared>& all, const std::vector<Pair>& pairs,
                  const std::vector<std::array<std::string, 3>>& differences, const Options& options) {
  if (!differences.empty()) {
    TextTable table;
    for (const auto* header : {"what differs", "a", "b"}) table.add_column(header);
    for (const auto& [column, a, b] : differences) table.add_row({column, a, b});
    print_table(table, options.format);
    fmt::print("\n");
  }
  TextTable table;
  std::vector<const Record*> cases;
  for (const auto& pair : pairs) cases.push_back(&pair.either());
  const auto axes = distinguishing_axes(cases, options.apart);
  add_axes(table, axes);
  for (const auto* header : {"time a", "time b", "b / a", "95 %", "memory a", "memory b"})
    table.add_column(header, TextTable::Align::right);
  table.add_column("verdict on b");
  for (const auto& c : all) {
    std::vector<std::string> cells;
    for (const auto* axis : axes) cells.push_back(plain_text(c.pair.either().get(axis->name)));
    const auto number = [](const Record* record, const char* column) { return record ? record->number(column) : std::nan(""); };
    cells.push_back(format_ms(number(c.pair.a, "time_median_ms")));
    cells.push_back(format_ms(number(c.pair.b, "time_median_ms")));
    const bool both = c.pair.both_measured();
    cells.push_back(both ? ratio_text(c.judgement.ratio.estimate) : "–");
    cells.push_back(both ? fmt::format("{} … {}", ratio_text(c.interval.low), ratio_text(c.interval.high)) : "–");
    cells.push_back(format_bytes(number(c.pair.a, "peak_extra_bytes")));
    cells.push_back(format_bytes(number(c.pair.b, "peak_extra_bytes")));
    cells.push_back(verdict_of(c));
    table.add_row(std::move(cells), both && !c.single ? tone_of(c.judgement.verdict) : Tone::plain);
  }
  print_table(table, options.format);
}

}  // namespace

Run add_compare_command(Command& command) {
  const auto options = std::make_shared<Options>();
  add_records_argument(command, "a", options->a);
  add_records_argument(command, "b", options->b);
  command.add("--apart", &options->apart, "axes in which the two records of a case may differ, such as device,method",
              {.placeholder = "AXES", .separator = ','});
  add_criteria_options(command, options->criteria);
  add_format_option(command, options->format);
  add_former_format_flag(command, options->format, Format::json);
  command.add_example("compare before/ after/", "says for each case whether it is slower in after/ than in before/");
  command.add_example("compare cpu/ gpu/ --apart device,threads",
                      "compares cases of two folders that differ only in the device and the number of threads");
  return [options](const WorkerProgram&) {
    const auto known = axis_names();
    for (const auto& axis : options->apart)
      if (std::find(known.begin(), known.end(), axis) == known.end())
        throw UsageError(fmt::format("--apart: unknown axis '{}'{}", axis, suggestion(axis, known)));
    const auto a = read_records(options->a), b = read_records(options->b);
    for (const auto& [name, records] : {std::pair(options->a, &a), std::pair(options->b, &b)})
      if (records->empty()) throw UsageError(name + " holds no records");
    const auto pairs = pairs_of(a, b, *options);
    if (std::none_of(pairs.begin(), pairs.end(), [](const Pair& pair) { return pair.a && pair.b; }))
      throw UsageError(
          fmt::format("{} and {} have no case in common; --apart names axes in which they may differ", options->a, options->b));
    const auto all = compared(pairs, options->criteria);
    std::vector<Judgement> judgements;
    for (const auto& c : all)
      if (c.pair.both_measured()) judgements.push_back(c.judgement);
    const auto verdict = judgements.empty() ? Verdict::inconclusive : overall_verdict(judgements);
    const auto differences = differing(pairs);
    if (options->format == Format::json) {
      print_json(json_of(all, differences, verdict));
      return exit_code::success;
    }
    print_tables(all, pairs, differences, *options);
    print_notice(shortage_in_words(all, options->criteria));
    if (options->format != Format::csv)
      fmt::print("\nover all: {} (Holm-adjusted p < {:g}, shifts over {:g} %)\n", verdict_name(verdict), options->criteria.alpha,
                 100 * options->criteria.min_shift);
    return exit_code::success;
  };
}

}  // namespace attnbench
