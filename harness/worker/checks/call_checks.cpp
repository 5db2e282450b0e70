// Compares inputs, memory and results of repeated calls, with copies of small inputs and sums of large ones.
#include "harness/worker/checks/call_checks.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "harness/worker/checks/selection.h"
#include "harness/worker/protocols/decode.h"

namespace attnbench {
namespace {

// Is added to the seed of a case for its other inputs. It is far from the seeds that users choose, so that the other inputs of
// one case are not the first inputs of another case.
constexpr uint64_t kOtherSeed = 0x5eed0000;

struct NamedInput {
  std::string name;
  const at::Tensor* tensor;
};

std::vector<NamedInput> named_inputs(const CallInputs& inputs) {
  std::vector<NamedInput> named;
  for (const auto& spec : attn::kInputs) named.push_back({spec.name, &(inputs.*spec.member)});
  named.push_back({"gradient of the output", &inputs.grad_output});
  return named;
}

double sum_of(const at::Tensor& x) { return x.defined() && x.numel() > 0 ? x.detach().sum(at::kDouble).item<double>() : 0; }

constexpr int64_t kMaxCopiedBytes = 4 << 20;  // larger inputs are compared by their sums

// Whether all inputs are so small that copies of them cost next to nothing.
bool are_small(const CallInputs& inputs) { return bytes_of(inputs) <= kMaxCopiedBytes; }

// Writes the entries of one problem's inputs over those of another in the same memory.
void overwrite(const CallInputs& to, const CallInputs& from) {
  const at::NoGradGuard no_gradients;
  const auto target = named_inputs(to), source = named_inputs(from);
  for (size_t i = 0; i < target.size(); ++i)
    if (target[i].tensor->defined()) target[i].tensor->copy_(*source[i].tensor);
  if (to.mask.key_lengths) to.mask.key_lengths->copy_(*from.mask.key_lengths);
  if (to.mask.cu_seqlens) to.mask.cu_seqlens->copy_(*from.mask.cu_seqlens);
}

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

InputState::InputState(const CallInputs& inputs) {
  const bool copies = are_small(inputs);
  for (const auto& input : named_inputs(inputs)) {
    if (copies) copies_.push_back(input.tensor->defined() ? input.tensor->detach().clone() : at::Tensor());
    else sums_.push_back(sum_of(*input.tensor));
  }
}

std::string InputState::changed(const CallInputs& inputs) const {
  const auto named = named_inputs(inputs);
  for (size_t i = 0; i < named.size(); ++i) {
    const auto& tensor = *named[i].tensor;
    const bool is_same =
        copies_.empty() ? sum_of(tensor) == sums_[i] : !tensor.defined() || at::equal(tensor.detach(), copies_[i]);
    if (!is_same) return named[i].name;
  }
  return "";
}

bool check_memory(const CallInputs& inputs, const InputState& before, const Results& results, Record& record) {
  if (const auto changed = before.changed(inputs); !changed.empty())
    return refuse(record, "the call changed its input " + changed + " in place");
  for (const auto& input : named_inputs(inputs))
    if (input.tensor->defined() && results.output.is_alias_of(*input.tensor))
      return refuse(record, "the output is a view of the input " + input.name + ", expected a tensor of its own");
  return true;
}

bool check_repeated_calls(const Subject& subject, Agreement& agreement, Record& record) {
  const auto problem = small_problem(subject);
  const auto everything = Selection::everything(problem);
  const auto call = [&](const CallInputs& inputs) { return subject.protocol->call(*subject.method, inputs); };
  const auto check = [&](const CallInputs& inputs, const InputState& before, const Results& results) {
    if (!check_memory(inputs, before, results, record)) return false;
    agreement.include(compare(*subject.method, inputs, results, everything));
    return agreement.set_columns(record, subject.tolerance()) &&
           (!results.state || check_state(record, *subject.method, *results.state));
  };
  const auto inputs = subject.make_inputs(problem);
  const auto others = subject.protocol->make_inputs(problem, subject.seed() + kOtherSeed, subject.source);
  const InputState sums(inputs), other_sums(others);
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
  const auto third = call(inputs);
  if (third.output.is_alias_of(first.output) || third.output.is_alias_of(second.output))
    return refuse(record, "a call returned the memory of an earlier result, expected a new tensor from each call");
  const auto nondeterminism = relative_difference(first_output, third.output);
  record.set("nondeterminism", nondeterminism);
  if (!(nondeterminism <= subject.tolerance()))
    return refuse(record, "two calls with the same inputs differ by " +
                              (std::isnan(nondeterminism) ? std::string("NaN") : Json(nondeterminism).dump()) + ", accepted " +
                              Json(subject.tolerance()).dump());
  overwrite(inputs, others);
  // The state is taken before the call, which an expression with both would not guarantee.
  const InputState overwritten_sums(inputs);
  if (check(inputs, overwritten_sums, call(inputs))) return true;
  record.set("reason", record.text("reason") + " (in a call with other numbers in the memory of the first inputs)");
  return false;
}

}  // namespace attnbench
