// The predicted cost of LSH attention.
#pragma once

#include "attn/lsh/implementation.h"
#include "attn/lsh/settings.h"
#include "attn/method.h"

namespace attn {

// The bytes of q and v; k is not read.
inline double lsh_input_bytes(const Problem& problem) { return problem.query_bytes() + problem.value_bytes(); }

// The cost of the forward pass, or with `backward` of both passes, over problem.query_len positions. `implementation` is null
// where the operator is composed of ATen operations.
Cost lsh_cost(const LshSettings& settings, const Problem& problem, bool backward, const LshImplementation* implementation);

}  // namespace attn
