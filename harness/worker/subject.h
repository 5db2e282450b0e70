// Subject: a case together with the objects that measuring it takes: the method, the problem, the protocol and the device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "attn/method.h"
#include "harness/schema/record.h"
#include "harness/worker/checks/selection.h"
#include "harness/worker/context.h"
#include "harness/worker/device.h"
#include "harness/worker/inputs/inputs.h"
#include "harness/worker/methods/foreign_method.h"
#include "harness/worker/process_settings.h"
#include "harness/worker/protocols/protocol.h"
#include "harness/worker/timing/timing.h"

namespace attnbench {

struct Subject {
  Case c;  // with all fields filled in, including the memory budget
  std::shared_ptr<attn::AttentionMethod> method;
  attn::Problem problem;
  const MeasuringProtocol* protocol;
  InputSource source;
  Device* device;
  WorkerContext context = {};
  bool checks_small = true;          // whether measuring it checks the agreement at a small size, too
  bool takes_quality = false;        // whether measuring it takes the quality columns, too
  std::string compared_digest = {};  // as in MeasureOptions

  uint64_t seed() const { return uint64_t(c.seed); }
  // Sets the digest of results in the record, and returns whether another process has compared results with the same bits.
  bool were_compared(const Results& results, Record& record) const;
  CallInputs make_inputs(const attn::Problem& p) const { return protocol->make_inputs(p, seed(), source); }
  // What the reference needs, and the memory that is left for it while `used_bytes` of the memory budget are in use.
  ReferenceNeed need_of_reference(int64_t used_bytes) const;
  // The largest max_rel_error that is accepted.
  double tolerance() const { return method->error_tolerance(problem.dtype); }
};

// Sets the columns of the predictions and of the device and, if the case leaves it open, the memory budget. If the case cannot
// run, returns nothing and records the case as skipped with the reason. Throws c10::ValueError for a wrong option or size.
std::optional<Subject> prepare(const Case& c, const WorkerContext& context, Record& record);

// Puts back the settings that differ from those before, and notes in the record that `what`, such as "the import", changed them.
void restore_settings(const ProcessSettings& before, const std::string& what, Record& record);
// Lets a method prepare its calls, and puts back the settings that this changes. Returns whether there was anything to prepare.
bool set_up(ForeignMethod& method, const attn::Problem& problem, attn::Protocol protocol, Record& record);
// Returns whether calls have left the settings as they were. If not, puts them back and records the failure. With turns, the
// processors of the thread are not compared, because the turns set them.
bool check_settings(const ProcessSettings& before, const Turns* turns, Record& record);

// The same problem with `more` more queries and keys.
attn::Problem extended(attn::Problem problem, int64_t more);
// The problem at a size where all rows can be compared: at most two batch entries and three heads, and a length of at most 300,
// or more if the method takes only larger multiples.
attn::Problem small_problem(const Subject& subject);
// The case with the sizes of its small problem. A case whose method cannot be made is returned as it is.
Case small_case(const Case& c, const WorkerContext& context);

// Adds time spent inside calls of the method to the column measured_s.
void add_measured_s(Record& record, double seconds);
// Sets the columns of times from the seconds of the first call and the samples, and those of disturbances if there is a watch.
void set_times(Record& record, const Subject& subject, double first_s, const Samples& samples, const SampleWatch* watch);

}  // namespace attnbench
