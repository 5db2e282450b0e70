// The kernel that adds a token to the state of linear attention and computes its output.
#include "attn/linear/cuda/step.cuh"

#include "attn/cuda/launch.cuh"
#include "attn/linear/cuda/run.h"

namespace attn::cuda {

void run_linear_step(const LinearParams& params, ElementType element, void* s, void* z, cudaStream_t stream) {
  const StreamLauncher launch(stream);
  const int warps = (params.value_dim + kStepColumns - 1) / kStepColumns;
  const int threads = kWarp * (warps < kMaxStepWarps ? warps : kMaxStepWarps);
  with_types(element, [&](auto e, auto t) {
    using E = decltype(e);
    using T = decltype(t);
    launch(step<E, T>, params.batch * params.heads, threads, step_shared_bytes<T>(params.head_dim), params, static_cast<T*>(s),
           static_cast<T*>(z));
  });
}

}  // namespace attn::cuda
