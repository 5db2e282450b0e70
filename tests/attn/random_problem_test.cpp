// Compares methods with the float64 reference on random problems. Methods, options, shapes, masks, dtypes and strides are drawn
// at random.
//
// Every run draws the same problems, so that a failure is one of the change that is tested. Other seeds draw other problems:
//   ATTNBENCH_RANDOM_SEED=1000 ATTNBENCH_RANDOM_PROBLEMS=10000 build/tests/attn_tests --gtest_filter='RandomProblems.*'
// About one problem in 6000 fails because its result is a difference of nearly equal numbers and has few entries, such as the
// gradient of q with a single key, which would be zero without rounding; it says nothing about the method.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/support/method_helpers.h"

namespace attn {
namespace {

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Draws random values from a seed.
class Draw {
 public:
  explicit Draw(uint64_t seed) : generator_(seed) {}

  int64_t integer(int64_t min, int64_t max) { return std::uniform_int_distribution<int64_t>(min, max)(generator_); }
  bool one_in(int64_t n) { return integer(1, n) == 1; }
  // A size whose logarithm is uniform, so that small sizes are drawn as often as large ones.
  int64_t size(int64_t max) {
    const auto exponent = std::uniform_real_distribution<double>(0, std::log(double(max) + 0.99))(generator_);
    return std::clamp<int64_t>(int64_t(std::exp(exponent)), 1, max);
  }
  template <class Values>
  const auto& any_of(const Values& values) {
    return values[size_t(integer(0, int64_t(std::size(values)) - 1))];
  }

 private:
  std::mt19937_64 generator_;
};

std::string random_value(Draw& draw, const OptionSpec& option) {
  if (option.name == "implementation" && option.choices.size() > 1)
    return draw.one_in(4) ? "composed" : cpu::name_of(draw.any_of(cpu::available_instruction_sets()));
  if (!option.choices.empty()) return draw.any_of(option.choices);
  if (std::holds_alternative<bool>(option.default_value)) return draw.one_in(2) ? "true" : "false";
  if (option.name == "buckets")
    return std::to_string(2 * draw.integer(0, 80));  // even, and sometimes so large that buckets are factored
  if (option.name == "rounds") return std::to_string(draw.integer(1, 4));
  EXPECT_TRUE(std::holds_alternative<int64_t>(option.default_value)) << "no way to draw option " << option.name;
  return std::to_string(option.min + draw.size(150) - 1);
}

std::string random_method(Draw& draw) {
  std::vector<const MethodEntry*> entries;
  for (const auto* entry : methods())
    if (!entry->name.starts_with("test-")) entries.push_back(entry);
  const auto& entry = *draw.any_of(entries);
  std::string spec = entry.name;
  for (const auto& option : entry.options)
    if (draw.one_in(2)) spec += (spec == entry.name ? ':' : ',') + (option.name + "=" + random_value(draw, option));
  return spec;
}

Problem random_problem(Draw& draw) {
  Problem p;
  p.batch = draw.one_in(20) ? 0 : draw.integer(1, 3);
  p.heads = draw.integer(1, 3);
  p.query_len = draw.size(280);
  p.key_len = draw.one_in(3) ? draw.size(280) : p.query_len;
  p.head_dim = draw.size(80);
  p.value_dim = draw.one_in(2) ? p.head_dim : draw.size(80);
  constexpr at::ScalarType dtypes[] = {at::kFloat, at::kDouble, at::kBFloat16};
  p.dtype = draw.any_of(dtypes);
  p.causal = p.key_len == p.query_len && draw.one_in(2);
  if (draw.one_in(2)) p.key_lengths = KeyLengthDistribution::parse("uniform");
  return p;
}

Pattern random_pattern(Draw& draw) {
  const auto number = [&] { return std::to_string(draw.size(280)); };
  const auto block = draw.size(280);
  const std::vector<std::string> texts{"window:" + number(),
                                       "window:" + number() + "+first:" + number(),
                                       "window:" + number() + "+global:" + number(),
                                       "global:" + number(),
                                       "strided:" + number(),
                                       "dilated:" + number() + "/" + number(),
                                       "block:" + std::to_string(block) + "/" + std::to_string(draw.integer(1, block))};
  return Pattern::parse(draw.any_of(texts));
}

// Returns the same numbers in memory with another order of the dimensions, and sometimes with gaps between them.
at::Tensor with_random_strides(Draw& draw, const at::Tensor& x) {
  std::vector<int64_t> order{0, 1, 2, 3}, back(4);
  for (size_t i = 3; i > 0; --i) std::swap(order[i], order[size_t(draw.integer(0, int64_t(i)))]);
  for (size_t i = 0; i < 4; ++i) back[size_t(order[i])] = int64_t(i);
  auto laid_out = x.detach().permute(order).contiguous();
  if (draw.one_in(3)) {
    const auto dim = draw.integer(0, 3);
    auto sizes = laid_out.sizes().vec();
    sizes[size_t(dim)] += 3;
    const auto larger = at::full(sizes, std::nan(""), x.options());
    larger.narrow(dim, 1, laid_out.size(dim)).copy_(laid_out);
    laid_out = larger.narrow(dim, 1, laid_out.size(dim));
  }
  return laid_out.permute(back);
}

void try_problem(uint64_t seed) {
  Draw draw(seed);
  const auto spec = random_method(draw);
  const auto method = make_method(spec);
  auto problem = random_problem(draw);
  if (method->capabilities().patterns && draw.one_in(2)) problem.pattern = random_pattern(draw);
  if (method->capabilities().packed && problem.query_len == problem.key_len && draw.one_in(3)) {
    problem.key_lengths = {};
    problem.batch = std::min<int64_t>(problem.batch, 1);
    problem.packed.drawn = draw.integer(1, std::min<int64_t>(problem.query_len, 9));
  }
  const auto protocol = draw.one_in(2) ? Protocol::forward : Protocol::forward_backward;
  auto inputs = inputs_of(problem, protocol, seed);
  if (draw.one_in(2)) {
    for (const auto member : {&Inputs::q, &Inputs::k, &Inputs::v})
      inputs.*member = with_random_strides(draw, inputs.*member).set_requires_grad((inputs.*member).requires_grad());
    if (inputs.grad_output.defined()) inputs.grad_output = with_random_strides(draw, inputs.grad_output);
  }
  SCOPED_TRACE(spec + " " + text_of({problem.query_len, problem.key_len, problem.head_dim, problem.value_dim}) +
               " B=" + std::to_string(problem.batch) + " H=" + std::to_string(problem.heads) + " " + dtype_name(problem.dtype) +
               (problem.causal ? " causal" : "") + (problem.key_lengths.is_full() ? "" : " key lengths") + " " +
               problem.pattern.text() + " packed " + problem.packed.text() + " " + protocol_name(protocol));
  if (divides_by_epsilon_alone(spec, problem)) return;
  const auto tolerance = error_tolerance(problem.dtype);
  if (const auto results = call_or_refuse(*method, problem, inputs, protocol)) {
    const auto agreement = compare(*method, inputs, *results, Selection::everything(problem));
    EXPECT_TRUE(agreement.within(tolerance)) << agreement.worst << ": " << agreement.max_rel_error;
  }
  if (!method->capabilities().decoding || problem.batch == 0) return;
  auto tokens = problem;
  tokens.query_len = tokens.key_len = std::min<int64_t>(problem.query_len, 100);
  tokens.causal = true;
  tokens.value_dim =
      std::max<int64_t>(tokens.value_dim, 16);  // errors are relative to the largest entry of a step, which must not be tiny
  tokens.key_lengths = {};
  tokens.pattern = {};
  tokens.packed = {};
  if (method->why_unsupported(tokens, Protocol::decode)) return;
  const auto stream = make_inputs(*method, tokens, Protocol::decode, seed);
  const auto position = draw.integer(0, tokens.query_len - 1);
  auto steps = Selection::everything(tokens);
  steps.rows = steps.rows.slice(0, position);
  const auto agreement = compare(*method, stream, decode_from(*method, stream, position), steps);
  EXPECT_TRUE(agreement.within(tolerance)) << "decoding, " << agreement.worst << ": " << agreement.max_rel_error;
}

TEST(RandomProblems, AgreeWithTheirReferences) {
  const auto seed = number_from_environment("ATTNBENCH_RANDOM_SEED", 0);
  const auto problems = number_from_environment("ATTNBENCH_RANDOM_PROBLEMS", 1000);
  for (uint64_t i = 0; i < problems; ++i) {
    SCOPED_TRACE("draw it again with ATTNBENCH_RANDOM_SEED=" + std::to_string(seed + i) + " ATTNBENCH_RANDOM_PROBLEMS=1");
    try_problem(seed + i);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace attn
