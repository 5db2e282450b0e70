// Sparse attention composed of ATen operations, which store the scores of all pairs. It runs where there are no kernels.
#pragma once

#include "attn/sparse/implementation.h"

namespace attn {

// As SparseImplementation::forward(). Autograd can differentiate both results by q, k, v and sinks.
SparseResults composed_sparse_forward(const SparseArguments& arguments);

}  // namespace attn
