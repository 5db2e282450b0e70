// The case that the worker measures or verifies, made ready: the method, the problem, the protocol, the device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "attn/method.h"
#include "harness/schema/record.h"
#include "harness/worker/device.h"
#include "harness/worker/inputs.h"
#include "harness/worker/protocol.h"
#include "harness/worker/quality.h"
#include "harness/worker/timing.h"

namespace attnbench {

struct Subject {
  Case c;  // complete, with its memory budget
  std::shared_ptr<attn::AttentionMethod> method;
  attn::Problem problem;
  const MeasuringProtocol* protocol;
  InputDistribution distribution;
  Device* device;

  uint64_t seed() const { return uint64_t(c.seed); }
  CallInputs make_inputs(const attn::Problem& of) const { return protocol->make_inputs(of, seed(), distribution); }
  // The relative error up to which results are accepted.
  double tolerance() const { return method->error_tolerance(problem.dtype); }
};

// Sets the columns of predictions, the device and, where the case leaves it open, the memory budget. Nothing when the case cannot
// run; the record says why.
std::optional<Subject> prepare(const Case& c, Record& record);

// The problem with `more` tokens.
attn::Problem extended(attn::Problem problem, int64_t more);
// The same problem at a size where all rows can be compared: at most two batch entries and heads, and a length of at most 300.
attn::Problem small_problem(attn::Problem problem);

// Adds time spent inside calls of the method to the column measured_s.
void add_measured_s(Record& record, double seconds);
// Sets the columns of times: the samples, and the first call's seconds.
void set_times(Record& record, const Subject& subject, double first_s, const Samples& samples);
void set_quality(Record& record, const Quality& quality);

}  // namespace attnbench
