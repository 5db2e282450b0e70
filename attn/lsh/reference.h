// LSH attention by its definition in float64, the exact attention that it approximates, and diagnostics of the approximation.
// These functions are slow and are never timed.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "attn/inputs.h"
#include "attn/lsh/settings.h"
#include "attn/method.h"

namespace attn::reference {

// In all functions below the inputs are float64, qk is inputs.q, and inputs.k is not read. `rows` (int64 [R]) holds the positions
// of the queries whose output rows are computed.

// Returns these rows of the output of LSH attention, [B,H,R,M].
at::Tensor lsh(const LshSettings& settings, const Inputs& inputs, const at::Tensor& rows);

// Returns the same rows of the exact attention, in which every query sees all keys that the mask allows.
ExactAttention lsh_exact(const LshSettings& settings, const Inputs& inputs, const at::Tensor& rows);

// Returns the diagnostics that Lsh::diagnostic_specs() describes, by name. It omits those that are undefined because there is no
// visible key.
std::vector<std::pair<std::string, double>> lsh_diagnostics(const LshSettings& settings, const Inputs& inputs,
                                                            const at::Tensor& rows);

}  // namespace attn::reference
