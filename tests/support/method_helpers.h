// Helpers that tests of methods share: the methods, masks and problems that they loop over, and short functions that call parts
// of the worker.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/cpu/instruction_set.h"
#include "attn/registry.h"
#include "harness/worker/checks/agreement.h"
#include "harness/worker/inputs/inputs.h"
#include "harness/worker/protocols/decode.h"
#include "harness/worker/protocols/protocol.h"
#include "tests/support/errors_of.h"

namespace attn {

using attnbench::CallInputs;
using attnbench::compare;
using attnbench::decode_from;
using attnbench::restrict_gradient;
using attnbench::Results;
using attnbench::Selection;

// The inputs with each tensor converted by `convert`.
template <class Convert>
Inputs converted(const Inputs& inputs, const Convert& convert) {
  auto result = inputs;
  for (const auto& spec : kInputs)
    if (auto& x = result.*spec.member; x.defined()) x = convert(x);
  return result;
}

// Makes the inputs of a protocol. The first draws what the method reads, the second q, k and v.
inline CallInputs make_inputs(const AttentionMethod& method, const Problem& problem, Protocol protocol, uint64_t seed,
                              attnbench::InputDistribution distribution = attnbench::InputDistribution::normal) {
  attnbench::InputSource source(distribution);
  source.tensors = method.inputs();
  return attnbench::find_protocol(protocol_name(protocol)).make_inputs(problem, seed, source);
}
inline CallInputs make_inputs(const Problem& problem, Protocol protocol, uint64_t seed,
                              attnbench::InputDistribution distribution = attnbench::InputDistribution::normal) {
  return attnbench::find_protocol(protocol_name(protocol)).make_inputs(problem, seed, distribution);
}
// Calls a method once as the protocol does.
inline Results call(AttentionMethod& method, const CallInputs& inputs, Protocol protocol) {
  return attnbench::find_protocol(protocol_name(protocol)).call(method, inputs);
}

// Whether a method runs kernels of this project, and not only operators of LibTorch.
inline bool has_own_kernels(const std::string& spec) {
  if (spec.find("composed") != std::string::npos) return false;
  for (const auto& option : find_method(spec.substr(0, spec.find(':'))).options)
    if (option.name == "implementation") return true;
  return false;
}

// Every registered method with its default options, and methods with options that take another path through the code. Methods
// that tests register have names that begin with "test-"; they are left out.
inline std::vector<std::string> method_specs() {
  std::vector<std::string> specs;
#ifdef ATTN_CUDA_EMULATION  // only the methods that have CUDA kernels, with options that choose these kernels
  for (const auto* spec : {"linear:implementation=cuda", "linear:implementation=cuda-tf32", "linear:implementation=cuda-plain",
                           "lsh:rounds=1,chunk=64,buckets=4,implementation=cuda",
                           "lsh:rounds=2,chunk=64,buckets=132,profile=fast-transformers,implementation=cuda"})
    specs.emplace_back(spec);
  return specs;
#endif
  for (const auto* entry : methods())
    if (!entry->name.starts_with("test-")) specs.push_back(entry->name);
  // These options give many chunks of which the last is partial, a projection that is shorter than the keys, few random features,
  // factored buckets, and many blocks of which few are chosen.
  for (const auto* spec : {"linear-chunked:chunk=7", "favor:composed_chunk=7,features=16,implementation=composed",
                           "rff:chunk=7,seed=5", "linformer:rank=8", "lsh:rounds=2,chunk=8,buckets=16",
                           "lsh:rounds=2,chunk=8,profile=fast-transformers", "lsh:rounds=1,chunk=16,buckets=132",
                           "lsh-composed:rounds=2,chunk=8,buckets=16", "lsh-composed:rounds=2,chunk=8,profile=fast-transformers",
                           "topk-pooled:block=8,top=2", "topk-pooled:block=1,top=5,implementation=portable", "pooled-kv:block=7"})
    specs.push_back(spec);
  // The kernels of the instruction sets that implementation=auto does not choose on this machine.
  for (const auto set : cpu::available_instruction_sets()) {
    if (set == cpu::available_instruction_sets().back()) break;
    for (const std::string name : {"linear:", "linear-elu0.1:", "taylor:", "polynomial-2:", "favor:features=24,",
                                   "lsh:rounds=2,chunk=8,buckets=16,", "lsh:rounds=2,chunk=8,profile=fast-transformers,"})
      specs.push_back(name + "implementation=" + cpu::name_of(set));
  }
  if (cpu::is_available(cpu::InstructionSet::amx))
    specs.emplace_back("linear:implementation=avx512");  // implementation=auto chooses AMX for bfloat16
#ifdef __SANITIZE_ADDRESS__
  // LibTorch is not instrumented, so a sanitizer finds nothing in methods that are composed of its operators; they are left out.
  // lsh-1, lsh-4 and lsh-8 are left out because they run the same kernels as lsh.
  std::erase_if(specs, [](const auto& spec) { return !has_own_kernels(spec) || spec.starts_with("lsh-"); });
#endif
  return specs;
}

#ifdef ATTN_CUDA_EMULATION
constexpr int64_t kMaxLength = 140;  // emulation is slow
#else
constexpr int64_t kMaxLength = 300;
#endif

// The dtypes in which the contract of methods is checked. Methods refuse float16 except on CUDA.
constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

enum class Masking { none, causal, key_lengths, causal_and_key_lengths };
constexpr Masking kMaskings[] = {Masking::none, Masking::causal, Masking::key_lengths, Masking::causal_and_key_lengths};

inline const char* name_of(Masking masking) {
  constexpr const char* names[] = {"none", "causal", "key_lengths", "causal_and_key_lengths"};
  return names[size_t(masking)];
}
inline bool is_causal(Masking m) { return m == Masking::causal || m == Masking::causal_and_key_lengths; }
inline bool has_key_lengths(Masking m) { return m == Masking::key_lengths || m == Masking::causal_and_key_lengths; }

// Replaces the characters that cannot be part of a test's name.
inline std::string identifier(std::string text) {
  for (auto& c : text)
    if (!isalnum(static_cast<unsigned char>(c))) c = '_';
  return text;
}

struct Shape {
  int64_t query_len, key_len, head_dim, value_dim;
};

inline std::string text_of(const Shape& s) {
  return "N=" + std::to_string(s.query_len) + " L=" + std::to_string(s.key_len) + " D=" + std::to_string(s.head_dim) +
         " M=" + std::to_string(s.value_dim);
}

inline Problem problem_of(const Shape& shape, at::ScalarType dtype, Masking masking, int64_t batch = 2, int64_t heads = 2) {
  Problem p;
  p.batch = batch;
  p.heads = heads;
  p.query_len = shape.query_len;
  p.key_len = shape.key_len;
  p.head_dim = shape.head_dim;
  p.value_dim = shape.value_dim;
  p.dtype = dtype;
  p.causal = is_causal(masking);
  if (has_key_lengths(masking)) p.key_lengths = KeyLengthDistribution::parse("uniform");
  return p;
}

// Makes inputs. If the problem has key lengths, the first batch entry has no visible key, the second has two thirds of the keys,
// and the others have a random number of them.
inline CallInputs inputs_of(const Problem& problem, Protocol protocol, uint64_t seed = 1,
                            attnbench::InputDistribution distribution = attnbench::InputDistribution::normal,
                            const AttentionMethod* method = nullptr) {
  auto inputs =
      method ? make_inputs(*method, problem, protocol, seed, distribution) : make_inputs(problem, protocol, seed, distribution);
  if (!problem.key_lengths.is_full() && problem.batch > 0) {
    inputs.mask.key_lengths->select(0, 0).fill_(0);
    if (problem.batch > 1) inputs.mask.key_lengths->select(0, 1).fill_((2 * problem.key_len + 2) / 3);
  }
  return inputs;
}

// The same with what the method reads.
inline CallInputs inputs_of(const AttentionMethod& method, const Problem& problem, Protocol protocol, uint64_t seed = 1,
                            attnbench::InputDistribution distribution = attnbench::InputDistribution::normal) {
  return inputs_of(problem, protocol, seed, distribution, &method);
}

// Whether a row of the method may be divided by ε alone, so that its gradients cannot be compared. In one dimension the weights
// of taylor are 2 or 0. If all weights of a row are 0, the row is divided by ε, and its gradients are as large as 1/ε. They
// cancel in a sum over all rows, which loses as many digits.
inline bool divides_by_epsilon_alone(const std::string& spec, const Problem& problem) {
  return spec.starts_with("taylor") && problem.head_dim == 1;
}

// Part of the message with which the method must refuse this problem, or nothing if it must compute it.
inline std::optional<std::string> expected_refusal(const AttentionMethod& method, const Problem& problem, Protocol protocol) {
  return method.why_unsupported(problem, protocol);
}

// Returns the results of a call. If the method must refuse the problem, checks that it does, and returns nothing.
inline std::optional<Results> call_or_refuse(AttentionMethod& method, const Problem& problem, const CallInputs& inputs,
                                             Protocol protocol) {
  const auto reason = expected_refusal(method, problem, protocol);
  if (!reason) return call(method, inputs, protocol);
  const auto message = attnbench::message_of<c10::ValueError>([&] { call(method, inputs, protocol); });
  EXPECT_CONTAINS(message, *reason);
  return std::nullopt;
}

inline bool all_finite(const at::Tensor& x) { return at::isfinite(x).all().item<bool>(); }

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// The gradients of a call, each with its name and the input that it belongs to.
struct NamedGradient {
  std::string name;
  at::Tensor Inputs::*input;
  at::Tensor tensor;
};
inline std::vector<NamedGradient> gradients_in(const Results& results) {
  std::vector<NamedGradient> named;
  for (const auto& spec : kInputs)
    if (const auto& x = results.gradients.*spec.member; x.defined())
      named.push_back({"gradient of " + std::string(spec.name), spec.member, x});
  return named;
}

// Expects that the largest difference, divided by the largest expected entry, is at most the tolerance.
inline void expect_close(const at::Tensor& result, const at::Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(result.sizes(), expected.sizes()) << what;
  if (expected.numel() == 0) return;
  ASSERT_TRUE(all_finite(result)) << what;
  const auto scale = std::max(1e-30, expected.to(at::kDouble).abs().max().item<double>());
  EXPECT_LE(largest_difference(result, expected) / scale, tolerance) << what;
}

// Does the same for all results. The differences of all gradients are divided by the largest entry of any gradient, because one
// gradient can be almost zero beside the others.
inline void expect_close(const Results& results, const Results& expected, double tolerance) {
  expect_close(results.output, expected.output, tolerance, "output");
  if (expected.output.numel() == 0) return;
  double scale = 1e-30;
  for (const auto& gradient : gradients_in(expected))
    scale = std::max(scale, gradient.tensor.to(at::kDouble).abs().max().item<double>());
  for (const auto& gradient : gradients_in(expected)) {
    const auto& found = results.gradients.*gradient.input;
    ASSERT_TRUE(all_finite(found)) << gradient.name;
    EXPECT_LE(largest_difference(found, gradient.tensor) / scale, tolerance) << gradient.name;
  }
}

// The results of forward and backward by the method's reference, in float64.
inline Results exact_results(const AttentionMethod& method, const CallInputs& inputs) {
  const auto exact = converted(inputs, [](const at::Tensor& x) { return x.detach().to(at::kDouble).set_requires_grad(true); });
  const at::AutoGradMode with_gradients(true);
  Results results;
  results.output = method.reference(exact, at::arange(inputs.q.size(2)));
  results.gradients = attnbench::gradients_of(results.output, inputs.grad_output.to(at::kDouble), exact, method.inputs());
  results.output = results.output.detach();
  return results;
}

// The largest difference in the last quarter of the positions, divided by the largest expected entry there. In a causal call the
// gradients of late queries are much smaller than those of early ones, and errors in them would not be seen beside these.
inline double error_of_late_rows(const at::Tensor& result, const at::Tensor& expected) {
  const auto late = [](const at::Tensor& x) { return x.slice(2, x.size(2) - x.size(2) / 4).to(at::kDouble); };
  return largest_difference(late(result), late(expected)) / late(expected).abs().max().item<double>();
}

}  // namespace attn
