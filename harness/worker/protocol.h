// A measuring protocol: what one sample of a case is, and how a case is measured, verified and predicted. Each protocol is one
// object in the file of its name: forward.cpp, forward_backward.cpp, prefill.cpp (what they share is in whole_call.cpp),
// decode.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "attn/method.h"
#include "harness/schema/record.h"
#include "harness/worker/call.h"
#include "harness/worker/inputs.h"
#include "harness/worker/turns.h"

namespace attnbench {

struct Subject;

// The min number of calls of the method that measuring a case takes, from which the driver predicts the time of the case.
struct MinCalls {
  int64_t timed = 0;  // inside samples
  int64_t other = 0;  // first call, warm-up, memory pass
};

class MeasuringProtocol {
 public:
  virtual ~MeasuringProtocol() = default;

  // The value by which methods know the protocol; its name is attn::protocol_name() of it.
  virtual attn::Protocol id() const = 0;

  virtual CallInputs make_inputs(const attn::Problem& problem, uint64_t seed, InputDistribution distribution) const {
    return attnbench::make_inputs(problem, seed, distribution);
  }

  // One call on whole sequences. Throws c10::ValueError for a protocol without such a call.
  virtual Results call(attn::AttentionMethod& method, const CallInputs& inputs) const = 0;

  virtual MinCalls min_calls(int64_t min_samples) const = 0;

  // Sets the predictions that this protocol makes beside the method's cost of one call.
  virtual void predict(const Subject& subject, Record& record) const { (void)subject, (void)record; }

  // Compares all rows at the case's own size with the reference.
  virtual void verify(const Subject& subject, Record& record) const = 0;

  // Checks the agreement with the reference, takes timed samples, and measures the memory of a call. `before_sample` runs untimed
  // before each sample, and may be empty; with `turns` the samples are taken in turns with other workers.
  virtual void measure(const Subject& subject, const std::function<void()>& before_sample, Turns* turns,
                       Record& record) const = 0;
};

// Throws c10::ValueError that lists the known names for an unknown one.
const MeasuringProtocol& find_protocol(const std::string& name);

// The object of each file.
const MeasuringProtocol& forward_protocol();
const MeasuringProtocol& forward_backward_protocol();
const MeasuringProtocol& prefill_protocol();
const MeasuringProtocol& decode_protocol();

}  // namespace attnbench
