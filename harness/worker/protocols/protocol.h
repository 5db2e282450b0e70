// A measuring protocol defines what one sample of a case is, and how a case is measured, verified and predicted. Each protocol is
// one object in the file of its name: forward.cpp, forward_backward.cpp, prefill.cpp and decode.cpp. whole_call.cpp holds what
// the first three share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "attn/method.h"
#include "harness/schema/record.h"
#include "harness/worker/call.h"
#include "harness/worker/inputs/inputs.h"
#include "harness/worker/timing/sample_watch.h"
#include "harness/worker/timing/turns.h"

namespace attnbench {

struct Subject;

// The minimum number of calls of the method that measuring a case takes. The driver predicts the time of the case from it.
struct MinCalls {
  int64_t timed = 0;  // inside samples
  int64_t other = 0;  // first call, warm-up, memory pass
};

// How samples are taken, beside what the case's settings say.
struct Sampling {
  std::function<void()> before_sample = {};  // runs before each sample, is not timed, and may be empty
  Turns* turns = nullptr;                    // if not null, samples are taken in turns with other workers
  SampleWatch* watch = nullptr;              // if not null, it tells which samples were disturbed
};

class MeasuringProtocol {
 public:
  virtual ~MeasuringProtocol() = default;

  // The value that stands for the protocol in calls of methods. Its name is attn::protocol_name(id()).
  virtual attn::Protocol id() const = 0;

  virtual CallInputs make_inputs(const attn::Problem& problem, uint64_t seed, const InputSource& source) const {
    return attnbench::make_inputs(problem, seed, source);
  }
  // The largest problem whose inputs measuring a case takes.
  virtual attn::Problem largest_problem(const attn::Problem& problem) const { return problem; }

  // Makes one call on whole sequences. Throws c10::ValueError for a protocol without such a call.
  virtual Results call(attn::AttentionMethod& method, const CallInputs& inputs) const = 0;

  // What makes the calls whose instructions are counted: each call of the result is one call of the method, or one step. It can
  // be called `most` times, and refers to the subject.
  virtual std::function<void()> repeated(const Subject& subject, int64_t most) const = 0;

  // `min_samples` is the setting of that name.
  virtual MinCalls min_calls(int64_t min_samples) const = 0;

  // Sets the columns of predictions that only this protocol has. The cost of one call is set elsewhere.
  virtual void predict(const Subject& subject, Record& record) const { (void)subject, (void)record; }

  // Compares all rows with the reference at the case's own size, and sets the columns of the agreement and the outcome.
  virtual void verify(const Subject& subject, Record& record) const = 0;

  // Compares results with the reference, takes timed samples, and measures the memory of a call.
  virtual void measure(const Subject& subject, const Sampling& sampling, Record& record) const = 0;
};

// Throws c10::ValueError for an unknown name and lists the known ones.
const MeasuringProtocol& find_protocol(const std::string& name);

// Each of these is defined in the file of the protocol's name.
const MeasuringProtocol& forward_protocol();
const MeasuringProtocol& forward_backward_protocol();
const MeasuringProtocol& prefill_protocol();
const MeasuringProtocol& decode_protocol();

}  // namespace attnbench
