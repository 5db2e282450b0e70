// Runs one case after another: predicts, starts a worker, and makes a whole record of whatever comes of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/process/worker_process.h"
#include "harness/schema/record.h"

namespace attnbench {

// The measured ceilings of one device.
struct DeviceCeilings {
  double bandwidth_gb_s = 0;
  double array_bytes = 0;                      // that it was measured on, beyond every cache
  std::map<std::string, double> gflop_s = {};  // by dtype; types that are missing may be faster than those that were measured

  // NaN where it was not measured.
  double rate_gflop_s(const std::string& dtype) const;
};

// The machine's, as `attnbench-worker ceilings` gives them.
class Ceilings {
 public:
  static Ceilings from_json(const Json& json);
  // For predictions before anything was measured: a slow core's, so that nothing possible is called hopeless.
  static Ceilings nominal(int64_t threads);

  // Of the device that the record is of; null where that has none.
  const DeviceCeilings* of(const Record& record) const;

 private:
  std::map<std::string, DeviceCeilings> devices_;  // by "cpu", "cuda"
};

// Predicts the time of a call from its cost and the ceilings, corrected by what the same method took before.
class TimePredictor {
 public:
  explicit TimePredictor(Ceilings ceilings) : ceilings_(std::move(ceilings)) {}

  // `record` holds a case and its cost. Milliseconds; NaN without a cost.
  double predict(const Record& record) const;
  // Whether anything like this was measured, so that the prediction is more than a lower bound.
  bool has_seen(const Record& record) const { return slowdown_.contains(group(record)); }
  void learn(const Record& measured);

 private:
  double bound_ms(const Record& record) const;
  static std::string group(const Record& record);

  Ceilings ceilings_;
  std::map<std::string, double> slowdown_;  // measured time over bound, the latest of its group
};

// Wall time that a case will take if a call takes `call_ms`.
double predicted_case_s(const Record& planned, double call_ms);

// Most memory that a case takes at once by prediction, also while it is made ready. NaN without a prediction.
double predicted_need_bytes(const Record& planned);

// Sets predictions and, where the case is hopeless, its outcome. `planned` holds the case and the worker's plan for it.
void predict(Record& planned, const TimePredictor& predictor);

// Runs a planned case in a worker of its own and returns its whole record. Throws Interrupted.
Record run_case(const WorkerProgram& worker, const Case& c, const Record& planned, const Record& environment,
                const std::optional<Ceilings>& ceilings);

// The case as a worker of another build is asked for it: without what is as it would be by default, which that build may not
// know.
Json portable_request(const Case& c);
// One process of each case by the worker beside it, all at once and taking turns in this order. Cases of one thread share a
// processor, chosen by `random`. What the workers answered, or what went wrong.
struct CaseOfBuild {
  WorkerProgram worker;
  Case c;
};
std::vector<Record> run_in_turns(const std::vector<CaseOfBuild>& sides, uint64_t random);

// Asks the worker for the plan of each case: a record with the case, its cost and, if it cannot run, why. Throws UsageError
// when a case makes no sense to it.
std::vector<Record> plan_cases(const WorkerProgram& worker, const std::vector<Case>& cases);

}  // namespace attnbench
