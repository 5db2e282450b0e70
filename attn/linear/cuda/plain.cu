// The kernels of linear attention without tensor cores.
#include "attn/linear/cuda/plain.cuh"

#include <algorithm>

#include "attn/cuda/launch.cuh"
#include "attn/linear/cuda/run.h"
#include "attn/linear/cuda/step.cuh"

namespace attn::cuda {
namespace {

int threads_for(int dim) { return dim <= 32 ? 32 : dim <= 64 ? 64 : dim <= 128 ? 128 : 256; }

}  // namespace

void run_linear_plain(const LinearParams& params, ElementType element, Pass pass, void* states, void* query_states,
                      cudaStream_t stream) {
  const StreamLauncher launch(stream);
  const int threads = threads_for(params.head_dim > params.value_dim ? params.head_dim : params.value_dim);
  with_types(element, [&](auto e, auto t) {
    using E = decltype(e);
    using T = decltype(t);
    const auto shared = PlainHead<E, T>::shared_bytes(params, threads);
    const auto heads = params.batch * params.heads;
    if (pass == Pass::forward) return launch(plain_forward<E, T>, heads, threads, shared, params, static_cast<T*>(states));
    launch(plain_backward_queries<E, T>, heads, threads, shared, params, static_cast<T*>(states));
    launch(plain_backward_keys<E, T>, heads, threads, shared, params, static_cast<T*>(query_states));
  });
}

size_t shared_bytes_of_linear_plain(int64_t head_dim, int64_t value_dim, ElementType element) {
  LinearParams params{};
  params.head_dim = int(head_dim);
  params.value_dim = int(value_dim);
  size_t bytes = 0;
  with_types(element, [&](auto e, auto t) {
    using T = decltype(t);
    const auto kernels = PlainHead<decltype(e), T>::shared_bytes(params, threads_for(int(std::max(head_dim, value_dim))));
    bytes = std::max(kernels, step_shared_bytes<T>(params.head_dim));
  });
  return bytes;
}

}  // namespace attn::cuda
