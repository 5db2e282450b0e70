// Quality: how close the outputs of a method are to those of exact attention (AttentionMethod::exact_attention).
//
// Random rows are compared, each by its relative error ‖output − exact‖ / ‖exact‖ (Euclidean norms) and by the cosine of the
// angle between both. Rows that see fewer than two keys are left out, because every method is exact there, and so are rows whose
// exact output is zero.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "attn/method.h"
#include "harness/schema/record.h"
#include "harness/worker/subject.h"

namespace attnbench {

// The numbers of each compared row.
class RowQualities {
 public:
  // Adds the rows of one head: `output` [1,1,R,M] of the method, and `exact` of exact attention. `visible` [1,1,R,L] (bool) is
  // true for the keys that a row sees, and `values` [1,1,L,M] are finite. All are float64 except for `visible`.
  void add(const at::Tensor& output, const attn::ExactAttention& exact, const at::Tensor& visible, const at::Tensor& values);

  size_t count() const { return errors.size(); }
  // Sets the columns that begin with quality_, except quality_seed_row_errors and quality_not_scored. Sets none without rows.
  void set_columns(Record& record) const;

  // The errors and cosines of the output, of the mean of the visible values in its place, and of zero in its place. Cosines with
  // zero are 0.
  std::vector<double> errors, cosines, mean_errors, mean_cosines, zero_errors;
  // exp(entropy) of the exact weights, in keys and as a share of the visible keys.
  std::vector<double> effective_keys, effective_shares;
};

// The text of the method with the option `seed`, if it has one, raised by `more`. If the sum is above the largest seed, the
// option is lowered instead. Throws c10::ValueError for a method that is not registered.
std::string with_other_seed(const std::string& method, int64_t more);

// Sets the columns of the quality, or why there is none. Makes a forward call for each seed: the inputs are drawn anew, and so
// are the random numbers that the method draws. Because the quality depends neither on the batch size nor on the number of heads,
// the calls have at most one batch entry and, unless heads are shared, two heads; inputs from a file are taken whole. Of each
// head, kQualityRows rows are compared. Returns false if an output is not finite, which the record then says.
bool measure_quality(const Subject& subject, Record& record);
inline constexpr int64_t kQualityRows = 64;

}  // namespace attnbench
