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

// The diagnostics that Lsh::diagnostic_specs() describes, by name. One that is undefined, because there is no visible key, is
// left out.
std::vector<std::pair<std::string, double>> lsh_diagnostics(const LshSettings& settings, const Inputs& inputs,
                                                            const at::Tensor& rows);

}  // namespace attn::reference
