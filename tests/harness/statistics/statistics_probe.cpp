// Lets the tests in Python call the functions of statistics.h. Each line of standard input is a JSON array
// [function, arguments…]; its result is written as one line of JSON to standard output. Numbers that are not finite are written
// as the texts "nan", "inf" and "-inf".
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/statistics/statistics.h"

namespace {

using Json = nlohmann::json;
using Numbers = std::vector<double>;
using attnbench::Interval;

Json number(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}
Json interval(const Interval& ends) { return {number(ends.low), number(ends.high)}; }

Json call(const Json& request) {
  using namespace attnbench;
  const auto name = request[0].get<std::string>();
  const auto numbers = [&](size_t i) { return request.at(i).get<Numbers>(); };
  const auto real = [&](size_t i) { return request.at(i).get<double>(); };
  if (name == "quantile") return number(quantile(numbers(1), real(2)));
  if (name == "median") return number(median(numbers(1)));
  if (name == "mann_whitney_p") return mann_whitney_p(numbers(1), numbers(2));
  if (name == "mann_whitney_exact_p") return mann_whitney_exact_p(numbers(1), numbers(2));
  if (name == "mann_whitney_asymptotic_p") return mann_whitney_asymptotic_p(numbers(1), numbers(2));
  if (name == "log_ratio") {
    const auto ratio = log_ratio(numbers(1), numbers(2), real(3));
    return {number(ratio.estimate), interval(ratio.interval)};
  }
  if (name == "signed_rank_p") return signed_rank_p(numbers(1));
  if (name == "signed_rank_greater_p") return signed_rank_greater_p(numbers(1));
  if (name == "paired_log_ratio") {
    const auto ratio = paired_log_ratio(numbers(1), real(2));
    return {number(ratio.estimate), interval(ratio.interval)};
  }
  if (name == "holm") return holm(numbers(1));
  if (name == "student_t_cdf") return number(student_t_cdf(real(1), real(2)));
  if (name == "student_t_quantile") return number(student_t_quantile(real(1), real(2)));
  if (name == "mean_estimate") {
    const auto estimate = mean_estimate(numbers(1), real(2));
    return {number(estimate.mean), interval(estimate.interval)};
  }
  if (name == "fit_line") {
    const auto fit = fit_line(numbers(1), numbers(2), real(3));
    return {number(fit.slope), number(fit.intercept), number(fit.slope_error), interval(fit.slope_interval)};
  }
  if (name == "first_crossing") {
    std::vector<Interval> intervals;
    for (const auto& ends : request.at(3)) intervals.push_back({ends[0].get<double>(), ends[1].get<double>()});
    const auto crossing = first_crossing(numbers(1), numbers(2), intervals);
    if (!crossing) return nullptr;
    return {number(crossing->at), interval(crossing->interval), crossing->rises};
  }
  throw std::invalid_argument("no function " + name);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << call(Json::parse(line)).dump() << "\n";
}
