// favor: FAVOR+ of Performers (arXiv 2009.14794), positive orthogonal random features of the softmax kernel.
// rff: trigonometric random Fourier features of the same kernel (Rahimi & Recht 2007), with which the denominator of attention
// may come near zero or be negative.
#include <ATen/ATen.h>

#include "attn/linear/method.h"
#include "attn/linear/reference.h"
#include "attn/registry.h"

namespace attn {
namespace {

constexpr int64_t kMaxFeatures = 1 << 16;

// `further` are the options that not both methods have.
std::vector<OptionSpec> options_with(const std::vector<OptionSpec>& further) {
  std::vector<OptionSpec> all{{"features", int64_t{256}, "number of random features", {}, 2, kMaxFeatures},
                              {"seed", int64_t{0}, "seed of the random directions", {}, 0, kMaxSeed}};
  all.insert(all.end(), further.begin(), further.end());
  return all;
}

class Favor : public RandomFeatureMethod {
 public:
  explicit Favor(const Options& options)
      : RandomFeatureMethod("favor", options.integer("composed_chunk"), options.integer("features"), options.integer("seed"),
                            options.text("implementation")) {}
};

// Each direction gives two features, a cosine and a sine.
class Rff : public RandomFeatureMethod {
 public:
  explicit Rff(const Options& options)
      : RandomFeatureMethod("rff", options.integer("chunk"), options.integer("features") / 2, options.integer("seed")) {}

  // Cosines of both signs nearly cancel in the denominators. So rounding a cosine can change results by far more than rounding
  // the inputs does.
  double error_tolerance(at::ScalarType dtype) const override {
    return RandomFeatureMethod::error_tolerance(dtype == at::kDouble ? at::kFloat : dtype);
  }
  std::vector<DiagnosticSpec> diagnostic_specs() const override {
    return {{"rff_min_denominator", "", "smallest absolute value of the denominator over the checked rows"}};
  }
  std::vector<std::pair<std::string, double>> diagnostics(const Inputs& inputs, const at::Tensor& rows) const override {
    const auto denominator = reference::linear_denominator(inputs, rows, *map_for(inputs.q.size(3)), kLinearEpsilon);
    return {{"rff_min_denominator", denominator.abs().min().item<double>()}};
  }
};

const RegisterMethod favor{entry_of<Favor>("favor", "FAVOR+: positive orthogonal random features of the softmax kernel", "O(N)",
                                           "O(N)", options_with({composed_chunk_option(128), kLinearImplementation}))};
const RegisterMethod rff{
    entry_of<Rff>("rff", "trigonometric random Fourier features of the softmax kernel", "O(N)", "O(N)",
                  options_with({{"chunk", int64_t{128}, "positions in a chunk of the causal form", {}, 1}}))};

}  // namespace
}  // namespace attn
