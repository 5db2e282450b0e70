// WholeCall: what the protocols forward, forward_backward and prefill share, whose sample is a call on whole sequences.
#pragma once

#include "harness/worker/protocols/protocol.h"
#include "harness/worker/subject.h"

namespace attnbench {

// A case is measured in this order, which ends at the first check that fails:
//
// 1. Small check: four calls at a length of at most 300 (harness/worker/checks/call_checks.h). All rows of all but the third are
// compared with the reference.
// 2. First call at the case's own size. About 64 rows are compared; with a CUDA graph (the axis `graph`), those of a replay.
// 3. Timed samples. The results are freed after each call.
// 4. Memory pass: a call under a memory meter.
// 5. For calls that compute gradients: a forward without a backward, to measure what it keeps alive for the backward.
// 6. In the first process of a case: the quality of the outputs (harness/worker/checks/quality.h).
//
// Times are set last, so that a record of a wrong result never carries a time.
class WholeCall : public MeasuringProtocol {
 public:
  // Besides the samples there is one call each in step 2, in the warm-up of step 3, in step 4 and in step 5.
  MinCalls min_calls(int64_t min_samples) const override { return {min_samples, 4}; }
  std::function<void()> repeated(const Subject& subject, int64_t most) const override;
  void verify(const Subject& subject, Record& record) const override;
  void measure(const Subject& subject, const Sampling& sampling, Record& record) const override;

 protected:
  // Step 5: the bytes that the forward keeps alive besides its inputs and its output; 0 for calls without gradients.
  virtual int64_t measure_saved_bytes(const Subject& subject, const CallInputs& inputs, Record& record) const {
    (void)subject, (void)inputs, (void)record;
    return 0;
  }
};

}  // namespace attnbench
