// What the worker measures or verifies, and the parts of a record that every protocol fills alike.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>

#include "attn/agreement.h"
#include "harness/schema/record.h"
#include "harness/worker/device.h"
#include "harness/worker/timing.h"

namespace attnbench {

struct Subject {
  std::shared_ptr<attn::AttentionMethod> method;
  attn::Problem problem;
  attn::Protocol protocol;
  attn::InputDistribution distribution;
  uint64_t seed;
  Device* device;

  attn::Inputs make_inputs(const attn::Problem& of) const { return attn::make_inputs(of, protocol, seed, distribution); }
};

// Sets costs, predictions, the device and, where the case leaves it open, its memory budget. Nothing when the case cannot run;
// the record says why.
std::optional<Subject> prepare(const Case& c, Record& record);

// The problem with `more` tokens.
attn::Problem extended(attn::Problem problem, int64_t more);
// The same problem at a size where every row can be compared.
attn::Problem small_problem(attn::Problem problem);

int64_t bytes_of(std::initializer_list<at::Tensor> tensors);

// Each fails the record for what is wrong, and says whether all is well.
bool set_agreement(Record& record, const attn::Agreement& agreement, double tolerance);
// A decoding state must take what the method's formula says.
bool check_state(Record& record, const attn::AttentionMethod& method, const attn::DecodingState& state);
// The allocator must not see more kept alive by a state than the state owns up to.
bool check_kept(Record& record, const attn::DecodingState& state, int64_t kept_bytes);

void set_times(Record& record, const Subject& subject, double first_s, const Samples& samples);
// What the meter saw of a call of which `input_bytes` were there before.
void set_memory(Record& record, const Subject& subject, const MemoryMeter& meter, int64_t input_bytes, int64_t extra_bytes);
void set_quality(Record& record, const attn::Quality& quality);

}  // namespace attnbench
