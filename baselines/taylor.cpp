// taylor: linear attention with the features [1, x̂], where x̂ = x/‖x‖. The kernel 1 + q̂·k̂ is the first-order Taylor expansion of
// exp(q̂·k̂), so the output is (Σv + q̂(k̂ᵀv)) / (L + q̂·Σk̂ + ε) if every key is visible.
#include "attn/linear/method.h"
#include "attn/registry.h"

namespace attn {
namespace {

class Taylor : public LinearMethod {
 public:
  explicit Taylor(const Options& options) : LinearMethod("taylor", options.integer("chunk"), options.text("kernel")) {}
};

const RegisterMethod registered{
    entry_of<Taylor>("taylor", "first-order Taylor expansion of the softmax kernel over normalised q and k", "O(N)", "O(N)",
                     {kKernelOption, {"chunk", int64_t{128}, "positions in a chunk of the composed causal form", {}, 1}})};

}  // namespace
}  // namespace attn
