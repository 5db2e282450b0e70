// Reads asv's file of the results of one commit (version 2): for each benchmark a list of columns, whose column `result` has a
// value for each combination of its parameters, the last of which varies fastest.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "harness/foreign/format_readers.h"

namespace attnbench {
namespace {

// What asv takes a function for by its name: "time_x" and "TimeX" for the time, "mem_x" for the size of an object, "peakmem_x"
// for the memory of the process. The result of any other function is a number whose direction asv does not know either.
std::string measure_of_name(std::string_view name) {
  const auto function = name.substr(name.rfind('.') + 1);
  const auto begins = [&](std::string_view lower, std::string_view upper) {
    return function.starts_with(lower) ||
           (function.starts_with(upper) && function.size() > upper.size() &&
            (function[upper.size()] == '_' || std::isupper(static_cast<unsigned char>(function[upper.size()])) != 0));
  };
  if (begins("time_", "Time") || begins("timeraw_", "Timeraw")) return "time";
  if (begins("mem_", "Mem") || begins("peakmem_", "PeakMem")) return "memory";
  return "";
}

// The combinations of the parameters, such as "(10, 'a')"; one without text for a benchmark without parameters. Empty if there
// are more than `most`.
std::vector<std::string> combinations_of(const Json& parameters, size_t most) {
  std::vector<std::string> all = {""};
  for (const auto& values : parameters) {
    if (!values.is_array() || values.empty() || all.size() * values.size() > most) return {};
    std::vector<std::string> longer;
    for (const auto& one : all)
      for (const auto& value : values)
        longer.push_back(one + (one.empty() ? "" : ", ") + (value.is_string() ? value.get<std::string>() : value.dump()));
    all = std::move(longer);
  }
  for (auto& one : all)
    if (!parameters.empty()) one = "(" + one + ")";
  return all;
}

// asv leaves out columns at the end that a benchmark does not have.
Json cell_of(const Json& row, size_t column) { return column < row.size() ? row[column] : Json(); }

}  // namespace

void read_asv_result(const Json& file, ForeignCollector& collector) {
  const auto& columns = file["result_columns"];
  const auto column_of = [&](const char* name) {
    const auto found = std::find(columns.begin(), columns.end(), Json(name));
    if (found == columns.end()) collector.fail(fmt::format("result_columns has no '{}'", name));
    return size_t(found - columns.begin());
  };
  const auto result_column = column_of("result"), parameters_column = column_of("params");
  if (const auto found = file.find("params"); found != file.end()) {
    const auto machine = text_or(*found, "machine"), cpu = text_or(*found, "cpu");
    collector.set_machine(machine + (machine.empty() || cpu.empty() ? "" : ", ") + cpu);
  }
  for (const auto& [name, row] : file["results"].items()) {
    if (measure_of_name(name) != collector.measure().name) {
      collector.leave_out(name);
      continue;
    }
    if (!row.is_array())
      collector.fail(fmt::format("the results of {} are {}, expected a list", quoted_name(name), row.type_name()));
    const auto values = cell_of(row, result_column), parameters = cell_of(row, parameters_column);
    if (!parameters.is_null() && !parameters.is_array())
      collector.fail(fmt::format("the parameters of {} are {}, expected a list", quoted_name(name), parameters.type_name()));
    const auto combinations = combinations_of(parameters.is_null() ? Json::array() : parameters, kMostForeignResults);
    if (combinations.empty()) collector.fail(fmt::format("the parameters of {} are no lists of values", quoted_name(name)));
    // The benchmark as a whole failed, or was not run.
    if (values.is_null()) {
      for (const auto& one : combinations) collector.add_fault(name + one, "it failed or was left out");
      continue;
    }
    if (!values.is_array() || values.size() != combinations.size())
      collector.fail(fmt::format("the results of {} are no list of {}, expected a value for each combination of parameters",
                                 quoted_name(name), fmt::format("{} values", combinations.size())));
    for (size_t i = 0; i < combinations.size(); ++i) collector.add(name + combinations[i], values[i]);
  }
}

}  // namespace attnbench
