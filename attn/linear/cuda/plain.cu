#include "attn/linear/cuda/plain.cuh"

#include "attn/cuda/launch.cuh"
#include "attn/linear/cuda/step.cuh"
#include "attn/cuda/run.h"

namespace attn::cuda {
namespace {

// work(an element of the tensors, a number of the sums)
template <class Work>
void with_types(ElementKind element, const Work& work) {
  switch (element) {
    case ElementKind::float32: return work(float(), float());
    case ElementKind::float64: return work(double(), double());
    case ElementKind::bfloat16: return work(BFloat16{}, float());
    case ElementKind::float16: return work(Half{}, float());
  }
}

int threads_for(int dim) { return dim <= 32 ? 32 : dim <= 64 ? 64 : dim <= 128 ? 128 : 256; }

}  // namespace

void run_linear_plain(const LinearCall& c, ElementKind element, Pass pass, void* states, void* more_states, cudaStream_t stream) {
  const OnStream launch(stream);
  const int threads = threads_for(c.head_dim > c.value_dim ? c.head_dim : c.value_dim);
  with_types(element, [&](auto e, auto t) {
    using E = decltype(e);
    using T = decltype(t);
    const auto shared = PlainHead<E, T>::shared_bytes(c, threads);
    const auto heads = c.batch * c.heads;
    if (pass == Pass::forward) return launch(plain_forward<E, T>, heads, threads, shared, c, static_cast<T*>(states));
    launch(plain_backward_queries<E, T>, heads, threads, shared, c, static_cast<T*>(states));
    launch(plain_backward_keys<E, T>, heads, threads, shared, c, static_cast<T*>(more_states));
  });
}

void run_linear_step(const LinearCall& c, ElementKind element, void* s, void* z, cudaStream_t stream) {
  const OnStream launch(stream);
  const int warps = (c.value_dim + kStepColumns - 1) / kStepColumns, threads = kWarp * (warps < kStepWarps ? warps : kStepWarps);
  with_types(element, [&](auto e, auto t) {
    using E = decltype(e);
    using T = decltype(t);
    launch(step<E, T>, c.batch * c.heads, threads, step_shared_bytes<T>(c.head_dim), c, static_cast<T*>(s), static_cast<T*>(z));
  });
}

}  // namespace attn::cuda
