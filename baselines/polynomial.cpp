// polynomial-2: linear attention whose kernel 1 + s + s²/2 with s = q·k/√D is the second-order expansion of the softmax kernel.
// Its D(D+1)/2 + D + 1 features per position are in memory for one chunk at a time.
#include "attn/linear/method.h"
#include "attn/registry.h"

namespace attn {
namespace {

class Polynomial2 : public LinearMethod {
 public:
  explicit Polynomial2(const Options& options)
      : LinearMethod("polynomial-2", options.integer("composed_chunk"), options.text("implementation")) {}
};

const RegisterMethod registered{entry_of<Polynomial2>("polynomial-2", "second-order Taylor expansion of the softmax kernel",
                                                      "O(N)", "O(N)", {kLinearImplementation, composed_chunk_option(64)})};

}  // namespace
}  // namespace attn
