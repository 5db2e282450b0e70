// The protocol "decode": a sample is one decoding step, whose token is at position query_len or soon after it. This header also
// declares the checks of decoding states, which the protocol "prefill" uses as well.
#pragma once

#include <cstdint>
#include <memory>

#include "attn/method.h"
#include "harness/schema/record.h"
#include "harness/worker/call.h"

namespace attnbench {

// A case is measured in this order, which ends at the first check that fails:
//
// 1. Small check: a new state takes in at most 300 tokens, then makes kStepsPerRound steps. All of them are compared with the
//    reference.
// 2. Check round: a state with room for kStepsPerRound more tokens takes in query_len tokens, then makes kCheckedSteps steps. The
//    time of the first step is recorded as time_first_ms. More steps follow until the warm-up time has passed, up to
//    kStepsPerRound in all. kCheckedSteps of these steps are compared, including the first and the last.
// 3. Timed rounds: a new state takes in query_len tokens, then makes kStepsPerRound steps. Each step after the first
//    kWarmupSteps is a sample, so the state grows as it does in use. There is at least one round, and more follow until the noise
//    target is reached or the time budget is spent. The time to fill the new states counts towards that budget.
// 4. Memory pass: one step under a memory meter.
//
// In a CUDA graph (the axis `graph`) the steps of a round are captured together. Step 2 then compares the outputs of the first
// replay, and a sample of step 3 is one or several replays, whose time is divided by the number of steps.
//
// For a method that computes the attention over the whole prefix at each token, a step can be as expensive as a forward. If one
// step takes longer than the time budget, the case makes kCheckedSteps + kStepsPerRound + 1 steps at its own size.
constexpr int64_t kStepsPerRound = 32;
// The first steps after the state was filled are slower the more tokens it took in, because those have emptied the caches. With
// linear attention it takes ten to twelve steps until all lengths take the same time.
constexpr int64_t kWarmupSteps = 12;
constexpr int64_t kCheckedSteps = 4;

// Returns a new state with room for all tokens of the inputs, which has taken in the first `position` of them.
std::unique_ptr<attn::DecodingState> decode_up_to(attn::AttentionMethod& method, const CallInputs& inputs, int64_t position);
// Does the same, then makes a step for each remaining token. The output holds the rows of these steps, [B,H,N-position,M].
Results decode_from(attn::AttentionMethod& method, const CallInputs& inputs, int64_t position);

// The following two functions return whether the check succeeds. If it does not, they record the failure.
//
// Checks that the state has the size that AttentionMethod::state_bytes() gives.
bool check_state(Record& record, const attn::AttentionMethod& method, const attn::DecodingState& state);
// Checks that the memory that the state holds, `held_bytes` as counted by a memory meter, does not exceed DecodingState::bytes().
bool check_held_bytes(Record& record, const attn::DecodingState& state, int64_t held_bytes);

}  // namespace attnbench
