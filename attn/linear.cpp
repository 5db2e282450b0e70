// linear: attention with the features elu(x) + 1 ("Transformers are RNNs", 2006.16236); linear-elu0.1: with elu(x; α = 0.1) + 1.
#include "attn/linear_method.h"
#include "attn/registry.h"

namespace attn {
namespace {

const std::vector<OptionSpec> kOptions{{"chunk", int64_t{128}, "positions a chunk of the causal form", {}, 1}};

class Linear : public LinearMethod {
 public:
  explicit Linear(const Options& options) : LinearMethod("elu", options.integer("chunk")) {}
};

class LinearElu01 : public LinearMethod {
 public:
  explicit LinearElu01(const Options& options) : LinearMethod("elu0.1", options.integer("chunk")) {}
};

const RegisterMethod linear{
    entry_of<Linear>("linear", "linear attention with elu(x) + 1 features; causal in chunks with constant-memory gradients",
                     "O(N)", "O(N)", kOptions)};
const RegisterMethod linear_elu01{
    entry_of<LinearElu01>("linear-elu0.1", "linear attention with elu(x; 0.1) + 1 features", "O(N)", "O(N)", kOptions)};

}  // namespace
}  // namespace attn
