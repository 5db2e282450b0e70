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
  // Rates that methods typically reach on a CPU with `threads` cores, for predictions before any ceiling was measured: they make
  // a bound an estimate, which is usually right within a factor of 2. Every device gets them.
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

// What the processes of a sweep take besides the calls of their methods, in seconds. The values come from the recorded sweeps in
// results/, as worker_s less measured_s; a test compares the predictions with those records. How the costs of the inputs and of
// the reference divide was measured with causal gradients at 65,536 positions, in first and in later processes.
struct ProcessCosts {
  double start_s = 0.24;                 // to start a worker, load LibTorch, probe the machine, and end
  double python_s = 0.65;                // to start Python in the worker, and import torch there, for a method in Python
  double setup_s = 9;                    // for a method in Python that prepares its calls, which most do with torch.compile
  double inputs_s_per_gb = 1.6;          // to draw the inputs, check that calls do not change them, and free them
  double reference_s_per_gb = 1.4;       // of the first process of a case: to compare with the reference
  double causal_gradients_s_per_gb = 8;  // more than that, for the reference of causal gradients
  double pages_s_per_gb = 0.9;     // to get memory for intermediate results from the system: three times, since the caches of
                                   // memory are empty in the first call, the first warm-up call, and the memory pass
  double small_check_s = 0.03;     // of the first process of a case: the agreement at a small size
  double quality_s_per_gb = 1.2;   // of the first process of a case: to draw the inputs of each of the quality_seeds
  double beside_baseline_s = 0.1;  // by which a worker starts more slowly beside that of the baseline
  double ceilings_s = 2.3;         // of each round of a sweep: to measure the ceilings of the machine
};
inline constexpr ProcessCosts kProcessCosts;

// The predicted seconds of a planned case: of all its `processes`, together with those of its baseline, if it has one. Calls take
// the predicted_time_ms of the plan, where a missing time counts as 0. 0 if the plan says that the case does not run.
double predicted_case_s(const Record& planned, const Record* baseline = nullptr);

// The predicted seconds of a sweep: of all cases, each with its baseline or null, and of measuring the ceilings in each round.
double predicted_sweep_s(const std::vector<Record>& planned, const std::vector<const Record*>& baselines);

// The max bytes that a planned case needs at any time, including its preparation. NaN without a prediction.
double predicted_need_bytes(const Record& planned);

// Adds the predicted time of a call to a planned case. Marks the case as skipped if it needs more memory than its budget, or more
// time than twice its deadline. `planned` holds the case and the worker's plan for it; if the plan says that the case does not
// run, nothing is changed.
void predict(Record& planned, const TimePredictor& predictor);

}  // namespace attnbench
