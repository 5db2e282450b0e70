// What the worker does with cases. Each answer is a record that holds only what the worker found out.
#pragma once

#include "attn/problem.h"
#include "harness/schema/record.h"
#include "harness/worker/turns.h"

namespace attnbench {

// Inputs → agreement check → timed pass → memory pass. Never throws for what a method does: that is the outcome.
// With `turns` the samples are taken in turns with other workers, and are the medians of turns.
Record measure(const Case& c, Turns* turns = nullptr);

// Makes kCountedCalls calls on one thread inside the function attnbench_counted_calls, for a profiler that counts their
// instructions. An injected slowdown makes more of them, in whole percent. The record has no figures of its own.
Record count(const Case& c);

// The agreement check alone, over all rows, at the case's own size.
Record verify(const Case& c);

// Cost and, where the case cannot run, why; touches no tensor.
Record plan(const Case& c);

}  // namespace attnbench
