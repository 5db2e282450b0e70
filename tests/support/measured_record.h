// Records with made-up times, for tests of what is computed from records.
#pragma once

#include <cstdint>
#include <string>

#include "harness/schema/record.h"

namespace attnbench {

// The record of a case on one thread whose calls took `ms`.
inline Record measured_record(const std::string& method, int64_t length, double ms, const std::string& device = "cpu",
                              int64_t batch = 1) {
  Case c;
  c.method = method;
  c.device = device;
  c.batch = batch;
  c.query_len = length;
  c.threads = 1;
  c.complete();
  Record record(c);
  record.set("outcome", outcome::measured);
  record.set("time_median_ms", ms);
  return record;
}

// So many values around `value`, each larger than the one before it by this share of `value`.
inline Json values_around(double value, int count, double step = 1e-4) {
  auto values = Json::array();
  for (int i = 0; i < count; ++i) values.push_back(value * (1 + step * (i - (count - 1) / 2.0)));
  return values;
}

}  // namespace attnbench
