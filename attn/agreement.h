// Inputs, the calls that are measured, and how closely their results agree with the method's own float64 reference.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/method.h"

namespace attn {

// What a call is made on. `output_gradient` [B,H,N,M] is used by forward_backward alone.
struct Inputs {
  at::Tensor q, k, v, output_gradient;
  Mask mask;
};

// How q and k are drawn, entries of variance one each. All else is standard normal.
enum class InputDistribution {
  normal,     // every entry independent
  clustered,  // rows around 16 standard normal centres, a tenth of a deviation away; a pair (batch, head) has centres of its own,
              // which its queries and keys share, and the c-th takes a share of them in proportion to 1/c
  repeated    // 64 normal rows over and over, of the queries and of the keys
};
// "normal", "clustered" or "repeated". Throws c10::ValueError for anything else.
InputDistribution parse_input_distribution(const std::string& name);

// Tensors and a mask for this problem, from the seed: the same whatever the number of threads.
Inputs make_inputs(const Problem& problem, Protocol protocol, uint64_t seed,
                   InputDistribution distribution = InputDistribution::normal);

// What a call gives: the gradients only after forward_backward, where one that no path reaches is zero, and the state only
// after prefill and decoding.
struct Results {
  at::Tensor output, q_gradient, k_gradient, v_gradient;
  std::shared_ptr<DecodingState> state = nullptr;
};

// One call of the protocol, as the harness times it; a decoding step is not one, see below. The inputs' requires_grad must be
// set as the protocol needs; make_inputs does so.
Results call(AttentionMethod& method, const Inputs& inputs, Protocol protocol);

// A fresh state, begun for all tokens of the inputs, that has taken in the first `position` of them.
std::unique_ptr<DecodingState> decode_up_to(AttentionMethod& method, const Inputs& inputs, int64_t position);
// Likewise, and a step for each token that follows: the output is theirs [B,H,N-position,M].
Results decode_from(AttentionMethod& method, const Inputs& inputs, int64_t position);

// Batch entries, heads and query positions (int64 vectors) whose results are compared.
struct Selection {
  at::Tensor batch, heads, rows;

  static Selection everything(const Problem& problem);
  // About `count` query rows in at most four (batch, head) pairs, the first and last position among them.
  static Selection random(const Problem& problem, int64_t count, uint64_t seed);
  int64_t count() const { return batch.numel() * heads.numel() * rows.numel(); }
};

// `inputs` with an output gradient that is zero outside the selection, so that the reference needs only those rows.
Inputs restrict_gradient(const Inputs& inputs, const Selection& selection);

struct Agreement {
  double max_abs_error = 0;
  // Per tensor the largest difference over the reference's scale, the worst tensor's. The scale is the tensor's largest entry;
  // for a gradient at least a tenth of the largest of all three, as one of them can vanish by cancellation (one key: its
  // softmax does not depend on q) and then has no scale of its own.
  double max_rel_error = 0;
  std::string worst;   // that tensor: "output", "q gradient", …
  bool finite = true;  // no NaN or infinity anywhere in the results, selected or not

  bool within(double tolerance) const { return finite && max_rel_error <= tolerance; }
  // The worse of both.
  void include(const Agreement& other);
};

// `inputs` as the results came from; their output gradient must be zero outside the selection. For decode the output is that of
// the last tokens alone, each compared with the reference over the tokens up to its own.
Agreement compare(const AttentionMethod& method, const Inputs& inputs, const Results& results, Protocol protocol,
                  const Selection& selection);

// What stands beside the agreement, of results that agree.
struct Quality {
  // ‖output − approximated‖ / ‖approximated‖ over the selection, for methods that approximate another attention.
  std::optional<double> approximation_error;
  std::vector<std::pair<std::string, double>> diagnostics;  // the method's own; of the last step for decode
};

// Arguments as of compare().
Quality assess(const AttentionMethod& method, const Inputs& inputs, const Results& results, Protocol protocol,
               const Selection& selection);

// Largest accepted max_rel_error for inputs of this type, unless a method has its own.
double error_tolerance(at::ScalarType dtype);

}  // namespace attn
