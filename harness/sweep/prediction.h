// Predicts how long a case takes and how much memory it needs, from the worker's plan and the machine's ceilings.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "harness/schema/record.h"

namespace attnbench {

// The measured ceilings of one device.
struct DeviceCeilings {
  double bandwidth_gb_s = 0;
  double array_bytes = 0;                      // size of the array that the bandwidth was measured on, larger than every cache
  std::map<std::string, double> gflop_s = {};  // arithmetic rate by dtype; dtypes that were not measured are missing

  // NaN for a dtype that was not measured.
  double rate_gflop_s(const std::string& dtype) const;
};

// The ceilings of a machine's devices.
class Ceilings {
 public:
  // From what `attnbench-worker ceilings` answers.
  static Ceilings from_json(const Json& json);
  // For predictions before anything was measured: typical ceilings of that many cores, for every device.
  static Ceilings nominal(int64_t threads);

  // The ceilings of the device of this record; null if they were not measured.
  const DeviceCeilings* of(const Record& record) const;

 private:
  std::map<std::string, DeviceCeilings> devices_;  // by "cpu" and "cuda"
};

// Predicts the time of a call: the bound that the ceilings set for its cost, multiplied by the slowdown over that bound that was
// measured last for the same method in the same setting.
class TimePredictor {
 public:
  explicit TimePredictor(Ceilings ceilings) : ceilings_(std::move(ceilings)) {}

  // Milliseconds, for a record that holds a case and its cost; NaN if it has no cost.
  double predict(const Record& record) const;
  // Whether the method was measured in this setting. If not, the prediction is only a lower bound.
  bool has_seen(const Record& record) const { return slowdown_.contains(group(record)); }
  void learn(const Record& measured);

 private:
  double bound_ms(const Record& record) const;
  static std::string group(const Record& record);

  Ceilings ceilings_;
  std::map<std::string, double> slowdown_;  // by group: measured time divided by its bound
};

// Seconds that a planned case takes if a call takes `call_ms` milliseconds; NaN counts as 0.
double predicted_case_s(const Record& planned, double call_ms);

// The most memory that a planned case takes at any time, its preparation included. NaN without a prediction.
double predicted_need_bytes(const Record& planned);

// Adds the predicted time to a planned case, and skips it if it needs more memory than its budget or more than twice the time of
// its deadline. `planned` holds the case and the worker's plan for it.
void predict(Record& planned, const TimePredictor& predictor);

}  // namespace attnbench
