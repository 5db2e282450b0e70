// The protocol "decode": a sample is one step, which takes in a token at position query_len or soon after. Also what it shares
// with prefill: the checks of decoding states.
#pragma once

#include <cstdint>
#include <memory>

#include "attn/method.h"
#include "harness/schema/record.h"
#include "harness/worker/call.h"

namespace attnbench {

// A case is measured in this order, and goes on only while all is well:
//
// 1. Small check: at most 300 tokens into a state, then kStepsPerRound steps, all of them compared.
// 2. Check round: query_len tokens into a state that has room for kStepsPerRound more, then kCheckedSteps steps, of which the
// first
//    is recorded as time_first_ms; while the warm-up time lasts, more steps, up to kStepsPerRound. Of all of them kCheckedSteps
//    are compared, the first and the last among them.
// 3. Timed rounds: a new state with query_len tokens, then kStepsPerRound steps, each of them a sample, so that the state grows
// as
//    it does in use. There is one round at least, and more until the noise target is reached or the time budget is spent; filling
//    the new states counts towards that budget.
// 4. Memory pass: one step under a memory meter.
//
// In a CUDA graph (the axis `graph`) the steps of a round are captured together: step 2 compares the outputs of the first replay,
// and a sample of step 3 is one or several replays, whose time is divided by the number of steps.
//
// A method that computes the attention of the whole prefix at each token can make a step as expensive as a forward. Such a case
// takes kCheckedSteps + kStepsPerRound + 1 steps at its own size, if one step takes longer than the time budget.
constexpr int64_t kStepsPerRound = 32;
constexpr int64_t kCheckedSteps = 4;

// A new state with room for all tokens of the inputs, which has taken in the first `position` of them.
std::unique_ptr<attn::DecodingState> decode_up_to(attn::AttentionMethod& method, const CallInputs& inputs, int64_t position);
// The same, followed by a step for each of the other tokens. The output holds their rows, [B,H,N-position,M].
Results decode_from(attn::AttentionMethod& method, const CallInputs& inputs, int64_t position);

// Each fails the record for what is wrong with a decoding state, and returns whether all is well.
//
// Checks that the state has the size that the method's formula gives.
bool check_state(Record& record, const attn::AttentionMethod& method, const attn::DecodingState& state);
// Checks that the state keeps no more memory in use, as the meter sees it, than its size says.
bool check_kept_bytes(Record& record, const attn::DecodingState& state, int64_t kept_bytes);

}  // namespace attnbench
