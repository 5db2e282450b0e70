// Predicts how long a case takes and how much memory it needs, from the worker's plan and the machine's ceilings.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/schema/record.h"

namespace attnbench {

// The ceilings of one device: the highest bandwidth and arithmetic rate that were measured on it.
struct DeviceCeilings {
  double bandwidth_gb_s = 0;
  double array_bytes = 0;                      // size of the array that the bandwidth was measured on, larger than every cache
  std::map<std::string, double> gflop_s = {};  // arithmetic rate of each dtype that was measured

  // NaN for a dtype that was not measured.
  double rate_gflop_s(const std::string& dtype) const;
};

// The ceilings of a machine's devices.
class Ceilings {
 public:
  // Reads the answer of `attnbench-worker ceilings`.
  static Ceilings from_json(const Json& json);
  // Typical ceilings of a CPU with `threads` cores, for predictions before any ceiling was measured. Every device gets them.
  static Ceilings nominal(int64_t threads);

  // The ceilings of the device that the record's case runs on; null if they were not measured.
  const DeviceCeilings* of(const Record& record) const;

 private:
  std::map<std::string, DeviceCeilings> devices_;  // by "cpu" and "cuda"
};

// Predicts the time of a call. The ceilings set a lower bound for the cost of the call. The prediction is that bound times a
// slowdown: the smallest ratio of the measured time to the bound among the records of the same group, since what disturbs a
// measurement makes it longer. Records whose bound is less than a hundredth of the call's bound do not count, because the fixed
// costs of a call weigh more in them. Records of one group have the same method and equal values of every axis that describes how
// a call is made (AxisKind::execution).
class TimePredictor {
 public:
  explicit TimePredictor(Ceilings ceilings) : ceilings_(std::move(ceilings)) {}

  // Returns milliseconds for a record that holds a case and its cost; NaN if it has no cost.
  double predict(const Record& record) const;
  // Whether a record was learned that counts for this one. If not, the slowdown is taken to be 1, and the prediction is a lower
  // bound.
  bool has_seen(const Record& record) const { return slowdown_of(record).has_value(); }
  // Takes the slowdown of a record that was measured.
  void learn(const Record& measured);

 private:
  struct Learned {
    double bound_ms, slowdown;
  };
  double bound_ms(const Record& record) const;
  std::optional<double> slowdown_of(const Record& record) const;
  static std::string group(const Record& record);

  Ceilings ceilings_;
  std::map<std::string, std::vector<Learned>> learned_;  // by group
};

// The seconds that a planned case takes if one call takes `call_ms` milliseconds, where NaN counts as 0. 0 if the plan says that
// the case does not run.
double predicted_case_s(const Record& planned, double call_ms);

// The max bytes that a planned case needs at any time, including its preparation. NaN without a prediction.
double predicted_need_bytes(const Record& planned);

// Adds the predicted time of a call to a planned case. Marks the case as skipped if it needs more memory than its budget, or more
// time than twice its deadline. `planned` holds the case and the worker's plan for it; if the plan says that the case does not
// run, nothing is changed.
void predict(Record& planned, const TimePredictor& predictor);

}  // namespace attnbench
