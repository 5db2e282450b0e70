// What the worker can do with a case: measure, count, verify or plan it. Each function returns a record with only the columns
// that it sets itself, without the axes of the case. None of them throws if a method fails; the record then has the outcome
// "failed".
#pragma once

#include <string>

#include "harness/schema/record.h"
#include "harness/worker/context.h"
#include "harness/worker/timing/turns.h"

namespace attnbench {

struct MeasureOptions {
  Turns* turns = nullptr;         // if not null, samples are taken in turns with other workers, and each is the median of a turn
  bool small_check = true;        // false if another process has checked the agreement at a small size
  bool quality = false;           // whether to take the quality columns
  double best_arithmetic_us = 0;  // the best time of the arithmetic probe in earlier processes, or 0
  // The digest of results that another process has compared with the reference, or empty. Results with the same bits are not
  // compared again.
  std::string compared_digest = {};
};

// Checks the agreement, takes timed samples and measures the memory, as the case's protocol says.
Record measure(const Case& c, const MeasureOptions& options = {}, const WorkerContext& context = {});

// Makes kCountedCalls calls on one thread inside the function attnbench_counted_calls, for a profiler that counts their
// instructions; an injected slowdown adds calls. No column holds the number of instructions, which only the profiler knows.
Record count(const Case& c, const WorkerContext& context = {});

// Compares all rows with the reference at the case's own size.
Record verify(const Case& c, const WorkerContext& context = {});

// Sets the predictions or, if the case cannot run, the reason. Allocates no tensor.
Record plan(const Case& c, const WorkerContext& context = {});

}  // namespace attnbench
