// Measures how long a model with untrained weights takes to generate a batch of images.
#pragma once

#include "harness/schema/generation.h"
#include "harness/schema/json.h"

namespace experiments {

// Times tokens, with sampling, at `positions` positions that are spread evenly over the image, and sums the time of a batch by
// the trapezoidal rule. If that is at most `whole_s`, also generates batches as a whole for `time_budget_s`, at least one.
// Returns the columns of generation_columns() from `outcome` on; the outcome is "skipped" if a token takes longer than
// `max_token_s`. Sets PyTorch's number of threads. Throws c10::ValueError for sizes and methods that the model or the decoder
// refuse.
attnbench::Json generation_speed(const attnbench::Generation& generation);

}  // namespace experiments
