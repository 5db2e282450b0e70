// What the worker does with a case: measure, count, verify or plan it. Each answer is a record that holds only what the worker
// found out. None of them throws for what a method does; that becomes the record's outcome.
#pragma once

#include "harness/schema/record.h"
#include "harness/worker/turns.h"

namespace attnbench {

// Checks the agreement, takes timed samples and measures the memory, as the case's protocol says. With `turns`, samples are taken
// in turns with other workers, and each is the median of a turn.
Record measure(const Case& c, Turns* turns = nullptr);

// Makes kCountedCalls calls on one thread inside the function attnbench_counted_calls, for a profiler that counts their
// instructions; an injected slowdown adds calls. Sets no figures itself.
Record count(const Case& c);

// Checks the agreement in all rows at the case's own size.
Record verify(const Case& c);

// Sets the predictions and, where the case cannot run, why. Allocates no tensor.
Record plan(const Case& c);

}  // namespace attnbench
