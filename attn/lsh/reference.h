// LSH attention by its definition in float64, the attention that it approximates, and how closely it does. Slow and never timed.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "attn/inputs.h"
#include "attn/lsh/settings.h"

namespace attn::reference {

// The inputs are float64; qk is inputs.q, and inputs.k is not read. `rows` (int64 [R]) are positions of queries.

// The output rows of LSH attention, [B,H,R,M].
at::Tensor lsh(const LshSettings& settings, const Inputs& inputs, const at::Tensor& rows);

// The same rows if every query saw all keys that the mask allows.
at::Tensor lsh_exact(const LshSettings& settings, const Inputs& inputs, const at::Tensor& rows);

// By the names of their columns in a record:
//   lsh_bucket_mean   keys in a bucket, the mean over the buckets that have any
//   lsh_bucket_skew   keys in the fullest bucket, divided by an even share of the keys
//   lsh_top16_share   the share of the keys with a row's 16 largest logits that the row sees in some round
//   lsh_mass_covered  the share of a row's exact softmax weights on keys that it sees in some round
// The last two are means over the rows that may see any key. A figure that nothing defines is left out.
std::vector<std::pair<std::string, double>> lsh_diagnostics(const LshSettings& settings, const Inputs& inputs,
                                                            const at::Tensor& rows);

}  // namespace attn::reference
