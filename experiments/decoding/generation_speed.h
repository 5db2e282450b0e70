// Measures how long a model with untrained weights takes to generate a batch of images.
#pragma once

#include "harness/schema/generation.h"
#include "harness/schema/json.h"

namespace experiments {

// Times tokens, with sampling, at `positions` positions that are spread evenly over the image, and sums the time of a batch by
// the trapezoidal rule. If that is at most `whole_s`, also generates batches as a whole for `time_budget_s`, at least one.
// Sets PyTorch's number of threads. Throws c10::ValueError for sizes and methods that the model or the decoder refuse. Returns
//   outcome                              "measured", or "skipped" with a `reason`, if a token takes longer than `max_token_s`
//   implementation                       what ran: of the model's layers, and of the attention
//   weights, parameters                  "untrained", since the time does not depend on the weights, and the model's size
//   batch_s, s_per_image, images_per_s   time in which a batch is generated, with sampling
//   extrapolated                         whether batch_s is extrapolated_s, because no image was generated as a whole
//   extrapolated_s, timed_tokens         the time of a batch by the trapezoidal rule, and from how many tokens
//   batches                              how many batches were generated as a whole
//   token_first_ms, token_last_ms        time of a token at the first and the last of the positions
//   state_bytes                          what the decoder stores about the tokens of a whole batch
//   peak_rss_bytes                       maximum of the resident memory of the process
attnbench::Json generation_speed(const attnbench::Generation& generation);

}  // namespace experiments
