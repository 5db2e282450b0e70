#include "harness/worker/call_checks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "harness/worker/decode.h"
#include "harness/worker/selection.h"

namespace attnbench {
namespace {

// Far from the seeds that users choose, so that the second inputs of one case are not the first of another.
constexpr uint64_t kOtherSeed = 0x5eed0000;

struct NamedInput {
  const char* name;
  const at::Tensor* tensor;
};

std::vector<NamedInput> named_inputs(const CallInputs& inputs) {
  return {{"q", &inputs.q}, {"k", &inputs.k}, {"v", &inputs.v}, {"gradient of the output", &inputs.grad_output}};
}

double sum_of(const at::Tensor& x) { return x.defined() && x.numel() > 0 ? x.detach().sum(at::kDouble).item<double>() : 0; }

bool refuse(Record& record, const std::string& reason) {
  record.set_failed(kind::invalid, reason);
  return false;
}

// The largest difference of two results, divided by the largest entry of the first.
double relative_difference(const at::Tensor& first, const at::Tensor& second) {
  if (first.numel() == 0) return 0;
  const auto scale = first.abs().max().item<double>();
  const auto difference = (first.to(at::kDouble) - second.to(at::kDouble)).abs().max().item<double>();
  return difference / (scale > 0 ? scale : 1);
}

}  // namespace

InputSums::InputSums(const CallInputs& inputs) {
  for (const auto& input : named_inputs(inputs)) sums_.push_back(sum_of(*input.tensor));
}

std::string InputSums::changed(const CallInputs& inputs) const {
  const auto named = named_inputs(inputs);
  for (size_t i = 0; i < named.size(); ++i)
    if (sum_of(*named[i].tensor) != sums_[i]) return named[i].name;
  return "";
}

bool check_memory(const CallInputs& inputs, const InputSums& before, const Results& results, Record& record) {
  if (const auto changed = before.changed(inputs); !changed.empty())
    return refuse(record, "the call changed its input " + changed + " in place");
  for (const auto& input : named_inputs(inputs))
    if (input.tensor->defined() && results.output.is_alias_of(*input.tensor))
      return refuse(record, std::string("the output is a view of the input ") + input.name + ", expected a tensor of its own");
  return true;
}

bool check_repeated_calls(const Subject& subject, Agreement& agreement, Record& record) {
  const auto problem = small_problem(subject);
  const auto everything = Selection::everything(problem);
  const auto call = [&](const CallInputs& inputs) { return subject.protocol->call(*subject.method, inputs); };
  const auto check = [&](const CallInputs& inputs, const InputSums& before, const Results& results) {
    if (!check_memory(inputs, before, results, record)) return false;
    agreement.include(compare(*subject.method, inputs, results, everything));
    return agreement.set_columns(record, subject.tolerance()) &&
           (!results.state || check_state(record, *subject.method, *results.state));
  };
  const auto inputs = subject.make_inputs(problem);
  const auto others = subject.protocol->make_inputs(problem, subject.seed() + kOtherSeed, subject.distribution);
  const InputSums sums(inputs), other_sums(others);
  const auto first = call(inputs);
  if (!check(inputs, sums, first)) return false;
  const auto first_output = first.output.clone();
  const auto second = call(others);
  if (second.output.is_alias_of(first.output))
    return refuse(record, "two calls returned the same memory, expected a new tensor from each call");
  if (!check(others, other_sums, second)) {
    record.set("reason", record.text("reason") + " (in a second call, with other inputs)");
    return false;
  }
  const auto nondeterminism = relative_difference(first_output, call(inputs).output);
  record.set("nondeterminism", nondeterminism);
  if (nondeterminism <= subject.tolerance()) return true;
  return refuse(record, "two calls with the same inputs differ by " + Json(nondeterminism).dump() + ", accepted " +
                            Json(subject.tolerance()).dump());
}

}  // namespace attnbench
