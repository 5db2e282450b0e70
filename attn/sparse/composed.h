// Sparse attention composed of ATen operations, which materialise the scores of all pairs. It runs where there are no kernels.
#pragma once

#include "attn/sparse/implementation.h"

namespace attn {

// Both are differentiable by autograd in q, k, v and sinks.
SparseResults composed_sparse_forward(const SparseArguments& arguments);

}  // namespace attn
