// Pairs records by their keys, and decides whether times or ratios to a common baseline are compared.
#include "harness/analysis/record_pairs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "harness/text/errors.h"

namespace attnbench {

bool RecordPair::both_measured() const { return outcome_of(a) == outcome::measured && outcome_of(b) == outcome::measured; }

std::string outcome_of(const Record* record) {
  if (!record) return "missing";
  if (record->has("external_source")) return "external";
  return record->measured() ? outcome::measured : record->text("failure_kind");
}

bool on_same_hosts(const Record& a, const Record& b) {
  return !a.has("host") || !b.has("host") || a.text("host") == b.text("host");
}

std::vector<RecordPair> pair_records(const Sides& sides, const std::vector<std::string>& apart) {
  std::vector<RecordPair> pairs;
  std::map<std::string, size_t> index;
  const auto take = [&](const std::vector<Record>& records, const Record* RecordPair::*side, const std::string& name) {
    for (const auto& record : records) {
      const auto [place, is_new] = index.emplace(record.key_without(apart), pairs.size());
      if (is_new) pairs.emplace_back();
      auto& mine = pairs[place->second].*side;
      if (mine)
        throw UsageError(fmt::format("{} has several records that differ only in {}, expected one, for example for {}{}", name,
                                     fmt::join(apart, ", "), place->first,
                                     std::find(apart.begin(), apart.end(), "method") == apart.end()
                                         ? ""
                                         : fmt::format("\n`attnbench compare {} --baseline METHOD` compares the methods of one "
                                                       "folder with one of them",
                                                       name)));
      mine = &record;
    }
  };
  take(sides.a, &RecordPair::a, sides.name_a);
  take(sides.b, &RecordPair::b, sides.name_b);
  return pairs;
}

std::string quantity_name(Quantity quantity) { return quantity == Quantity::ratio ? "ratio" : "time"; }

namespace {

// The axes of the baseline of the record's case, which follow those of the case; empty without a baseline.
std::string baseline_key(const Record& record) {
  Case c;
  for (const auto& field : fields())
    if (field.role == FieldRole::axis && record.has(field.name)) set(c, field, record.get(field.name));
  c.baseline = record.text("baseline");
  const auto baseline = baseline_of(c);
  return baseline ? case_key(to_json(*baseline)) : "";
}

}  // namespace

bool have_common_baseline(const Record& a, const Record& b) {
  const auto has_ratios = [](const Record& r) { return !process_values(r, Quantity::ratio).empty(); };
  if (!has_ratios(a) || !has_ratios(b)) return false;
  const auto key = baseline_key(a);
  return !key.empty() && key == baseline_key(b);
}

std::vector<double> process_values(const Record& record, Quantity quantity) {
  const auto* column = quantity == Quantity::ratio ? "process_ratios" : "process_medians_ms";
  std::vector<double> found;
  for (const auto& value : record.get(column)) {
    if (value.is_null()) continue;  // a process that has no such value
    found.push_back(value.get<double>());
    if (!(found.back() > 0))
      throw UsageError(fmt::format("the record of {}has {} = {}, expected positive numbers", record.key(), column, value.dump()));
  }
  const auto* single = quantity == Quantity::ratio ? "ratio_median" : "time_median_ms";  // of a record with one process
  if (found.empty() && (quantity == Quantity::time || record.has(single))) found.push_back(record.number(single));
  return found;
}

Quantity best_quantity(const Record& a, const Record& b) { return have_common_baseline(a, b) ? Quantity::ratio : Quantity::time; }

}  // namespace attnbench
