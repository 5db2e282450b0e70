// Registers the methods
//   linear          linear attention with the features elu(x) + 1 ("Transformers are RNNs", 2006.16236)
//   linear-elu0.1   the same with elu(x; α = 0.1) + 1
//   linear-chunked  linear, composed of ATen operations
#include "attn/linear/method.h"
#include "attn/registry.h"

namespace attn {
namespace {

constexpr int64_t kComposedChunk = 128;  // positions in a chunk of the composed causal form

class Linear : public LinearMethod {
 public:
  explicit Linear(const Options& options) : LinearMethod("elu", kComposedChunk, options.text("implementation")) {}
};

class LinearElu01 : public LinearMethod {
 public:
  explicit LinearElu01(const Options& options) : LinearMethod("elu0.1", kComposedChunk, options.text("implementation")) {}
};

class LinearChunked : public LinearMethod {
 public:
  explicit LinearChunked(const Options& options) : LinearMethod("elu", options.integer("chunk")) {}
};

const RegisterMethod linear{entry_of<Linear>("linear",
                                             "linear attention with elu(x) + 1 features, with constant-memory gradients", "O(N)",
                                             "O(N)", {kLinearImplementation})};
const RegisterMethod linear_elu01{entry_of<LinearElu01>("linear-elu0.1", "linear attention with elu(x; 0.1) + 1 features", "O(N)",
                                                        "O(N)", {kLinearImplementation})};
const RegisterMethod linear_chunked{
    entry_of<LinearChunked>("linear-chunked", "linear attention composed of ATen operations, in chunks if causal", "O(N)", "O(N)",
                            {{"chunk", kComposedChunk, "positions in a chunk of the composed causal form", {}, 1}})};

}  // namespace
}  // namespace attn
