// Records with made-up values, for the tests of the analysis.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/analysis/analysis.h"
#include "tests/support/measured_record.h"

namespace attnbench {

class AnalysisTest : public testing::Test {
 protected:
  using Growing = std::function<double(double)>;

  // Adds a record with this time and memory per sample, and an interval of ± `noise` of the time.
  Record& add(const std::string& method, int64_t length, double ms, double bytes, double noise = 0.01, int64_t batch = 4) {
    // Records hold the values of the whole batch.
    auto& record = records_.emplace_back(measured_record(method, length, double(batch) * ms, "cpu", batch));
    set_time(record, double(batch) * ms, noise);
    record.set("peak_extra_bytes", int64_t(double(batch) * bytes));
    record.set("peak_allocated_bytes", int64_t(double(batch) * bytes) + 1000);
    return record;
  }
  static void set_time(Record& record, double ms, double noise) {
    record.set("time_median_ms", ms);
    record.set("time_ci_low_ms", ms * (1 - noise));
    record.set("time_ci_high_ms", ms * (1 + noise));
  }
  // Adds a record at each length from `from` to `to`, each `factor` times the one before.
  void add_lengths(const std::string& method, const Growing& ms, const Growing& bytes, int64_t from = 512, int64_t to = 16384,
                   int64_t factor = 2) {
    for (int64_t n = from; n <= to; n *= factor) add(method, n, ms(double(n)), bytes(double(n)));
  }
  Analysis result(const std::vector<double>& budgets = {}) const { return analyse(records_, kMethods, budgets); }

  static const Order& order_of(const Analysis& analysis, const std::string& method, const std::string& quantity) {
    for (const auto& order : analysis.growth.orders)
      if (order.series->method == method && order.quantity == quantity) return order;
    throw std::runtime_error("no order of " + method);
  }
  static GrowthVerdict verdict_of(const Analysis& analysis, const std::string& method, const std::string& quantity) {
    return order_of(analysis, method, quantity).verdict();
  }
  static const Crossover& crossover_of(const Analysis& analysis, const std::string& quantity = "time") {
    for (const auto& found : analysis.crossovers)
      if (found.quantity == quantity) return found;
    throw std::runtime_error("no comparison of " + quantity);
  }

  inline static const Json kMethods = {{{"name", "linear"},
                                        {"time_order", "O(N)"},
                                        {"memory_order", "O(N)"},
                                        {"decode_time_order", "O(1)"},
                                        {"decode_memory_order", "O(1)"}},
                                       {{"name", "softmax"},
                                        {"time_order", "O(N²)"},
                                        {"memory_order", "O(N²)"},
                                        {"decode_time_order", "O(N²)"},
                                        {"decode_memory_order", "O(N²)"}},
                                       {{"name", "taylor"}, {"time_order", "O(N)"}, {"memory_order", "O(N)"}},
                                       {{"name", "lsh"}, {"time_order", "O(N log N)"}, {"memory_order", "O(N log N)"}}};
  std::vector<Record> records_;
};

inline double constant(double /*n*/) { return 1; }
inline double linear(double n) { return 1e-3 * n; }
inline double square(double n) { return 1e-6 * n * n; }
inline double bytes_of_linear(double n) { return 100 * n; }
inline double bytes_of_square(double n) { return 8 * n * n; }

}  // namespace attnbench
