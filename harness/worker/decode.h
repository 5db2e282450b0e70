// The protocol "decode": the time of one token at position query_len, and what a decoding state takes.
#pragma once

#include <functional>

#include "harness/worker/subject.h"

namespace attnbench {

// In this order, and each only after those before it went well:
//
// 1. Small check: at most 300 tokens into the state, then 32 steps, all of them compared.
// 2. Check round, untimed but for its first step: query_len tokens into a state begun for 32 more, then kCheckedSteps steps; more
//    of them, up to 32, while the warm-up time lasts. kCheckedSteps of them are compared, first and last among them.
// 3. Timed rounds: the state anew, and 32 steps, each a sample, the state growing as it truly does. One round at least;
//    more until the noise target is reached or the time budget is spent, in which making states anew counts.
// 4. One step with a counting allocator.
//
// In a CUDA graph (the axis `graph`) the 32 steps are one capture: step 2 compares the outputs of its first replay, and a sample
// of step 3 is a replay or several, its time divided by the steps.
//
// So a method that recomputes its prefix makes 4 + 32 + 1 steps where one costs more than the time budget.
// `before_sample` may be empty, and `turns` null.
void measure_decode(const Case& c, const Subject& subject, const std::function<void()>& before_sample, Turns* turns,
                    Record& record);

// Steps after query_len tokens at the case's own size, all compared.
void verify_decode(const Subject& subject, Record& record);

}  // namespace attnbench
