// What the protocols share whose sample is a call on whole sequences: forward, forward_backward and prefill.
#pragma once

#include "harness/worker/protocol.h"
#include "harness/worker/subject.h"

namespace attnbench {

// Measures in this order, and goes on only while all is well:
//
// 1. Small check: a call at a length of at most 300, compared in all rows.
// 2. First call at the case's own size, compared in about 64 rows. In a CUDA graph (the axis `graph`) the results of a replay are
//    compared.
// 3. Timed samples, with the results dropped after each call.
// 4. Memory pass: a call under a memory meter.
// 5. For calls that compute gradients: a forward alone, to see what it keeps alive for the backward.
//
// Times are set last, so that a record of a wrong result never carries a time.
class WholeCall : public MeasuringProtocol {
 public:
  // The calls of steps 2 (one), 3 (one of warm-up beside the samples), 4 and 5.
  MinCalls min_calls(int64_t min_samples) const override { return {min_samples, 4}; }
  void verify(const Subject& subject, Record& record) const override;
  void measure(const Subject& subject, const std::function<void()>& before_sample, Turns* turns, Record& record) const override;

 protected:
  // Step 5: what the forward keeps alive besides its inputs and its output.
  virtual int64_t measure_saved_bytes(const Subject& subject, const CallInputs& inputs, Record& record) const {
    (void)subject, (void)inputs, (void)record;
    return 0;
  }
};

}  // namespace attnbench
