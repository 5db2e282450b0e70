// Views of the inputs of a call.
#include "attn/inputs.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "attn/input_spec.h"

namespace attn {

Inputs Inputs::tokens(int64_t begin, int64_t length) const {
  auto some = *this;
  for (const auto& spec : kInputs) {
    const auto axis = spec.position_axis();
    if (auto& x = some.*spec.member; x.defined() && axis >= 0) x = x.narrow(axis, begin, length);
  }
  return some;
}

namespace {

// Each head of x [B,heads,…] `times` times. The gradient of a head is one sum over its copies, which is rounded once.
at::Tensor repeated(const at::Tensor& x, int64_t times) {
  auto sizes = x.sizes().vec();
  sizes.insert(sizes.begin() + 2, times);
  return x.unsqueeze(2).expand(sizes).flatten(1, 2);
}

}  // namespace

Inputs Inputs::with_all_heads() const {
  auto all = *this;
  const auto heads = output_heads();
  for (const auto& spec : kInputs)
    if (auto& x = all.*spec.member; x.defined() && x.size(spec.head_axis()) != heads) x = repeated(x, heads / x.size(1));
  if (part && q.size(1) != heads) {
    const auto times = heads / q.size(1);
    const auto within = at::arange(times, part->heads.options());
    all.part->heads = (part->heads.unsqueeze(1) * times + within).flatten();
    all.part->heads_of_call = part->heads_of_call * times;
  }
  return all;
}

int64_t Inputs::output_heads() const {
  int64_t heads = 0;
  for (const auto& spec : kInputs)
    if (const auto& x = this->*spec.member; x.defined()) heads = std::max(heads, x.size(spec.head_axis()));
  return heads;
}

at::Tensor Inputs::head_indices() const {
  if (part) return part->heads;
  return at::arange(q.size(1), at::TensorOptions(at::kLong).device(q.device()));
}

int64_t Inputs::heads_of_call() const { return part ? part->heads_of_call : q.size(1); }

}  // namespace attn
