// The table of the input tensors of attention methods, and the checks that follow from it.
#include "attn/input_spec.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "attn/check_tensor.h"
#include "attn/implementations.h"

namespace attn {
namespace {

struct Axis {
  char letter;
  const char* field;  // of Problem
  int64_t (*size)(const Problem&);
};
constexpr Axis kAxes[] = {{'B', "batch", [](const Problem& p) { return p.batch; }},
                          {'H', "heads", [](const Problem& p) { return p.heads; }},
                          {'G', "kv_heads", [](const Problem& p) { return p.key_head_count(); }},
                          {'W', "value_heads", [](const Problem& p) { return p.value_head_count(); }},
                          {'U', "the largest number of heads", [](const Problem& p) { return p.output_head_count(); }},
                          {'N', "query_len", [](const Problem& p) { return p.query_len; }},
                          {'L', "key_len", [](const Problem& p) { return p.key_len; }},
                          {'D', "head_dim", [](const Problem& p) { return p.head_dim; }},
                          {'M', "value_dim", [](const Problem& p) { return p.value_dim; }}};

const Axis& axis_of(char letter) {
  const auto* const found =
      std::find_if(std::begin(kAxes), std::end(kAxes), [&](const Axis& axis) { return axis.letter == letter; });
  TORCH_INTERNAL_ASSERT(found != std::end(kAxes), "a problem has no axis with the letter ", letter);
  return *found;
}

// Throws c10::ValueError unless all lengths are between 0 and key_len.
void check_values_of_key_lengths(const at::Tensor& lengths, int64_t key_len) {
  // Reading values from a GPU would wait for all work that was queued before, so the values are checked on the CPU only.
  if (lengths.numel() == 0 || !lengths.device().is_cpu()) return;
  const auto [min, max] = at::aminmax(lengths);
  TORCH_CHECK_VALUE(min.item<int64_t>() >= 0, "key_lengths holds ", min.item<int64_t>(), ", expected at least 0");
  TORCH_CHECK_VALUE(max.item<int64_t>() <= key_len, "key_lengths holds ", max.item<int64_t>(),
                    ", expected at most the key length ", key_len);
}

TensorChecks checks_of(const Inputs& inputs, const std::vector<InputSpec>& specs) {
  TensorChecks checks;
  for (const auto& spec : specs) {
    const auto& x = inputs.*spec.member;
    if (!x.defined() && !spec.required) continue;
    checks.check(spec.name, x, spec.shape, spec.accumulates ? std::optional(spec.dtype(inputs.q.scalar_type())) : std::nullopt);
  }
  return checks;
}

}  // namespace

int64_t InputSpec::position_axis() const {
  const auto axis = std::strcspn(shape, "NL");
  return shape[axis] == '\0' ? -1 : int64_t(axis);
}

int64_t InputSpec::head_axis() const { return int64_t(std::strcspn(shape, "HGWU")); }

std::vector<int64_t> InputSpec::sizes(const Problem& problem) const {
  std::vector<int64_t> all;
  for (const auto* letter = shape; *letter != '\0'; ++letter) all.push_back(size_of_axis(*letter, problem));
  return all;
}

at::ScalarType InputSpec::dtype(at::ScalarType of_query) const { return accumulates ? accumulator_dtype(of_query) : of_query; }

double InputSpec::bytes(const Problem& problem) const {
  auto bytes = double(c10::elementSize(dtype(problem.dtype)));
  for (const auto size : sizes(problem)) bytes *= double(size);
  return bytes;
}

int64_t size_of_axis(char letter, const Problem& problem) { return axis_of(letter).size(problem); }
const char* field_of_axis(char letter) { return axis_of(letter).field; }

const InputSpec& find_input(const std::string& name) {
  std::string known;
  for (const auto& spec : kInputs) {
    if (name == spec.name) return spec;
    known += (known.empty() ? "" : ", ") + std::string(spec.name);
  }
  TORCH_CHECK_VALUE(false, "unknown input '", name, "', expected one of ", known);
}

const std::vector<InputSpec>& query_key_value() {
  static const std::vector<InputSpec> specs{kInputs[0], kInputs[1], kInputs[2]};
  return specs;
}

void check_inputs(const Inputs& inputs, const std::vector<InputSpec>& specs) { checks_of(inputs, specs); }

Problem problem_of(const Inputs& inputs, const std::vector<InputSpec>& specs) {
  auto checks = checks_of(inputs, specs);
  const auto &q = inputs.q, &v = inputs.v, &k = inputs.k.defined() ? inputs.k : v;
  Problem problem;
  problem.batch = q.size(0);
  problem.heads = q.size(1);
  problem.kv_heads = k.size(1);
  problem.value_heads = v.size(1);
  problem.query_len = q.size(2);
  problem.key_len = k.size(2);
  problem.head_dim = q.size(3);
  problem.value_dim = v.size(3);
  problem.dtype = q.scalar_type();
  problem.device = q.device().type();
  problem.causal = inputs.mask.causal;
  problem.pattern = inputs.mask.pattern;
  if (inputs.mask.key_lengths) {
    checks.check_key_lengths(*inputs.mask.key_lengths);
    check_values_of_key_lengths(*inputs.mask.key_lengths, k.size(2));
    problem.key_lengths.kind = KeyLengthDistribution::Kind::uniform;
  }
  if (const auto& borders = inputs.mask.cu_seqlens) {
    check_cu_seqlens("", *borders, q);
    check_values_of_cu_seqlens("", *borders, q.size(2), "q");
    problem.packed.drawn = borders->size(0) - 1;
    if (borders->device().is_cpu()) {
      const auto lengths = borders->diff().contiguous();
      problem.packed.lengths.assign(lengths.const_data_ptr<int64_t>(), lengths.const_data_ptr<int64_t>() + lengths.numel());
    }
  }
  problem.sinks = inputs.sinks.defined();
  problem.validate();
  const auto heads = problem.output_head_count();
  TORCH_CHECK_VALUE(!problem.sinks || inputs.sinks.size(0) == heads, "sinks has heads ", problem.sinks ? inputs.sinks.size(0) : 0,
                    ", expected ", heads, ", the largest number of heads of q, k and v");
  for (const auto* x : {&k, &v}) TORCH_CHECK_VALUE(x->size(1) >= 1, x == &k ? "k" : "v", " has heads 0, expected at least 1");
  return problem;
}

}  // namespace attn
