// Tests of the CPU kernels beyond the contract of every method. Each instruction set is compared with the float64 reference where
// threads share a sequence. Other tests check that nothing outside a tensor is read, that exp is exact to 2 ulp, the size of
// decoding states, and which kernels are refused.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "attn/cpu/instruction_set.h"
#include "attn/linear/cpu/implementation.h"
#include "attn/linear/feature_map.h"
#include "attn/linear/linear_attention.h"
#include "attn/lsh/implementation.h"
#include "tests/support/errors_of.h"
#include "tests/support/exp_of.h"
#include "tests/support/method_helpers.h"

namespace attn {
namespace {

using attnbench::message_of;

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const auto set : cpu::available_instruction_sets()) names.emplace_back(cpu::name_of(set));
  return names;
}

class Kernels : public testing::TestWithParam<std::string> {
 protected:
  // Whether the tested instruction set computes in this dtype.
  bool has(at::ScalarType dtype) const { return dtype != at::kDouble || GetParam() == "portable"; }
};
INSTANTIATE_TEST_SUITE_P(Available, Kernels, testing::ValuesIn(kernel_names()), [](const auto& tested) { return tested.param; });

// Sets the number of threads until the end of the scope.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

// With few heads and many positions, threads share a sequence. A thread begins in the middle of it, from the state that the
// threads before it computed.
TEST_P(Kernels, ThreadsThatShareASequenceAgreeWithTheReference) {
  for (const int threads : {1, 2, 3, 5}) {
    const Threads set(threads);
    for (const std::string name : {"linear:", "linear-elu0.1:", "favor:features=40,", "lsh-1:", "lsh-4:"}) {
      const auto method = make_method(name + "implementation=" + GetParam());
      for (const auto masking : kMaskings) {
        for (const int64_t heads : {1, 3}) {
          SCOPED_TRACE(name + " " + name_of(masking) + ", heads " + std::to_string(heads) + ", threads " +
                       std::to_string(threads));
          const auto problem = problem_of({1333, 1333, 24, 40}, at::kFloat, masking, has_key_lengths(masking) ? 2 : 1, heads);
          const auto inputs = inputs_of(problem, Protocol::forward_backward);
          const auto results = call(*method, inputs, Protocol::forward_backward);
          EXPECT_EQ(method->implementation(), "kernel/" + GetParam());
          const auto selection = Selection::random(problem, 120, 1);
          const auto restricted = restrict_gradient(inputs, selection);
          const auto agreement = compare(*method, restricted, call(*method, restricted, Protocol::forward_backward), selection);
          EXPECT_TRUE(agreement.within(error_tolerance(at::kFloat))) << agreement.worst << ": " << agreement.max_rel_error;
          EXPECT_TRUE(all_finite(results.output));
        }
      }
    }
  }
}

TEST_P(Kernels, CrossAttentionSharedByThreadsAgreesWithTheReference) {
  const Threads set(3);
  for (const std::string name : {"linear:", "favor:features=40,"}) {
    const auto method = make_method(name + "implementation=" + GetParam());
    for (const auto& shape : {Shape{2000, 700, 32, 16}, Shape{600, 2100, 32, 16}, Shape{5, 3000, 16, 16}}) {
      SCOPED_TRACE(name + text_of(shape));
      const auto problem = problem_of(shape, at::kFloat, Masking::key_lengths, 2, 1);
      const auto inputs = inputs_of(problem, Protocol::forward_backward);
      const auto agreement =
          compare(*method, inputs, call(*method, inputs, Protocol::forward_backward), Selection::everything(problem));
      EXPECT_TRUE(agreement.within(error_tolerance(at::kFloat))) << agreement.worst << ": " << agreement.max_rel_error;
    }
  }
}

TEST_P(Kernels, ResultsAreReproducibleForAFixedNumberOfThreads) {
  const Threads set(3);
  for (const std::string name : {"linear", "favor", "lsh-4"}) {
    const auto method = make_method(name + ":implementation=" + GetParam());
    const auto problem = problem_of({900, 900, 32, 32}, at::kFloat, Masking::causal, 1, 2);
    const auto inputs = inputs_of(problem, Protocol::forward_backward);
    const auto once = call(*method, inputs, Protocol::forward_backward),
               again = call(*method, inputs, Protocol::forward_backward);
    EXPECT_TRUE(at::equal(once.output, again.output)) << name;
    for (const auto& gradient : gradients_in(once))
      EXPECT_TRUE(at::equal(gradient.tensor, again.gradients.*gradient.input)) << name << " " << gradient.name;
  }
}

// A copy of a tensor that ends, or begins, at a memory page that may not be read or written. An access to that page is a crash.
class Guarded {
 public:
  enum class Edge { end, begin };

  Guarded(const at::Tensor& x, Edge edge) {
    const auto page = size_t(sysconf(_SC_PAGESIZE)), size = x.nbytes(), whole = (size + page - 1) / page * page;
    size_ = whole + 2 * page;
    memory_ = static_cast<char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (memory_ == MAP_FAILED) throw std::runtime_error("mmap failed");
    mprotect(memory_, page, PROT_NONE);
    mprotect(memory_ + page + whole, page, PROT_NONE);
    char* at = memory_ + page + (edge == Edge::end ? whole - size : 0);
    tensor = at::from_blob(at, x.sizes(), x.options());
    tensor.copy_(x.detach());
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() {
    tensor.reset();
    munmap(memory_, size_);
  }
  at::Tensor tensor;

 private:
  char* memory_;
  size_t size_;
};

// Only reads of the inputs are checked here. The results lie in memory of the allocator, which AddressSanitizer watches.
TEST_P(Kernels, NothingOutsideATensorIsRead) {
  for (const std::string name : {"linear", "favor", "lsh-1"}) {
    const auto method = make_method(name + ":implementation=" + GetParam());
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
      if (!has(dtype)) continue;
      for (const auto& shape : {Shape{1, 1, 1, 1}, Shape{17, 17, 3, 5}, Shape{130, 130, 17, 33}, Shape{70, 70, 64, 64}}) {
        for (const auto edge : {Guarded::Edge::end, Guarded::Edge::begin}) {
          const auto problem = problem_of(shape, dtype, Masking::causal_and_key_lengths, 2, 1);
          auto inputs = inputs_of(problem, Protocol::forward_backward);
          const auto expected = call(*method, inputs, Protocol::forward_backward);
          const Guarded q(inputs.q, edge), k(inputs.k, edge), v(inputs.v, edge), g(inputs.grad_output, edge);
          inputs.q = q.tensor.set_requires_grad(true);
          inputs.k = k.tensor.set_requires_grad(true);
          inputs.v = v.tensor.set_requires_grad(true);
          inputs.grad_output = g.tensor;
          const auto results = call(*method, inputs, Protocol::forward_backward);
          EXPECT_TRUE(at::equal(results.output, expected.output)) << name << " " << text_of(shape);
          EXPECT_TRUE(at::equal(results.gradients.q, expected.gradients.q)) << name << " " << text_of(shape);
        }
      }
    }
  }
}

TEST_P(Kernels, TheReluMapThatNoMethodUsesAgreesWithTheComposition) {
  const auto problem = problem_of({150, 150, 24, 24}, at::kFloat, Masking::causal_and_key_lengths);
  const auto inputs = inputs_of(problem, Protocol::forward_backward);
  const auto run = [&](const std::string& kernel, at::ScalarType dtype) {
    Results results;
    std::vector<at::Tensor> leaves;
    for (const auto* x : {&inputs.q, &inputs.k, &inputs.v}) leaves.push_back(x->detach().to(dtype).set_requires_grad(true));
    results.output =
        linear_attention(leaves[0], leaves[1], leaves[2], {true, inputs.mask.key_lengths, "relu", 1e-6, {}, 64, kernel});
    const auto gradients = torch::autograd::grad({results.output}, leaves, {inputs.grad_output.to(dtype)});
    results.gradients = {gradients[0], gradients[1], gradients[2]};
    return results;
  };
  expect_close(run(GetParam(), at::kFloat), run("composed", at::kDouble), error_tolerance(at::kFloat));
}

// The scales e^c of these keys exceed the range of float32, and rise, fall or jump along the sequence. So the scale to which a
// state is relative changes on the way, and rows before a jump must not lose their keys because of that.
TEST_P(Kernels, ScalesBeyondFloat32) {
  const auto directions = draw_orthogonal_directions(48, 16, 3);
  const auto t = at::linspace(0, 1, 400).view({1, 1, 400, 1});
  for (const auto& [name, length] : {std::pair<std::string, at::Tensor>{"rise", 30 * t},
                                     {"fall", 30 - 30 * t},
                                     {"jump", at::where(t > 0.6, 40, 1)},
                                     {"spike", at::where((t * 399).round() == 200, 60, 2)}}) {
    for (const bool causal : {true, false}) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(name + (causal ? " causal " : " full ") + std::to_string(threads));
        const Threads set(threads);
        const auto problem = problem_of({400, 400, 16, 24}, at::kFloat, causal ? Masking::causal : Masking::none, 1, 2);
        const auto inputs = inputs_of(problem, Protocol::forward_backward);
        const auto run = [&](const std::string& kernel, at::ScalarType dtype) {
          Results results;
          std::vector<at::Tensor> leaves;
          for (const auto& x : {inputs.q, inputs.k * length, inputs.v})
            leaves.push_back(x.detach().to(dtype).clone().set_requires_grad(true));
          results.output = linear_attention(leaves[0], leaves[1], leaves[2], {causal, {}, "favor", 1e-6, directions, 64, kernel});
          const auto gradients = torch::autograd::grad({results.output}, leaves, {inputs.grad_output.to(dtype)});
          results.gradients = {gradients[0], gradients[1], gradients[2]};
          return results;
        };
        const auto results = run(GetParam(), at::kFloat);
        EXPECT_TRUE(all_finite(results.output));
        expect_close(results, run("composed", at::kDouble), 2e-3);
      }
    }
  }
}

TEST_P(Kernels, DecodingStatesHaveNoPadding) {
  for (const auto& [name, numbers] : {std::pair<std::string, int64_t>{"linear:", 19 * 38}, {"favor:features=21,", 21 * 38 + 1}}) {
    SCOPED_TRACE(name);
    const auto method = make_method(name + "implementation=" + GetParam());
    const auto problem = problem_of({70, 70, 19, 37}, at::kFloat, Masking::causal, 2, 3);
    const auto inputs = make_inputs(problem, Protocol::decode, 1);
    const auto results = decode_from(*method, inputs, 30);
    EXPECT_EQ(method->implementation(), "kernel/" + GetParam());
    EXPECT_EQ(results.state->bytes(), 2 * 3 * numbers * 4);
    auto steps = Selection::everything(problem);
    steps.rows = steps.rows.slice(0, 30);
    const auto agreement = compare(*method, inputs, results, steps);
    EXPECT_TRUE(agreement.within(error_tolerance(at::kFloat))) << agreement.max_rel_error;
  }
}

#ifdef __x86_64__
// What a table of bfloat16 kernels computes for one head: outputs, normalizers, S and Z.
struct HeadResults {
  at::Tensor output, normalizer, s, z;
};

HeadResults run_head(const cpu::LinearKernels& kernels, FeatureMapKind map, bool causal, const CallInputs& inputs,
                     int64_t visible) {
  const auto rows = [](const at::Tensor& x) { return cpu::Rows{x.data_ptr(), x.size(3)}; };
  cpu::LinearHeadParams p{};
  p.map = map;
  p.head_dim = p.feature_count = inputs.q.size(3);
  p.value_dim = inputs.v.size(3);
  p.visible_keys = visible;
  p.epsilon = 1e-6f;
  const auto padded_values = cpu::padded(p.value_dim), padded_features = cpu::padded(p.feature_count);
  HeadResults r{at::zeros({1, 1, inputs.q.size(2), p.value_dim}, at::kBFloat16), at::zeros({inputs.q.size(2)}),
                at::zeros({padded_features, padded_values}), at::zeros({padded_features})};
  p.q = rows(inputs.q);
  p.k = rows(inputs.k);
  p.v = rows(inputs.v);
  p.output = rows(r.output);
  p.normalizer = r.normalizer.data_ptr();
  const auto scratch = at::empty({kernels.scratch_size(p)});
  if (causal) {
    kernels.forward(p, 0, inputs.q.size(2), r.s.data_ptr(), r.z.data_ptr(), scratch.data_ptr());
  } else {
    kernels.add_keys(p, 0, inputs.k.size(2), r.s.data_ptr(), r.z.data_ptr(), scratch.data_ptr());
    kernels.read(p, 0, inputs.q.size(2), r.s.data_ptr(), r.z.data_ptr(), scratch.data_ptr());
  }
  return r;
}

// Proves the layout of the tiles where there is no AMX, and that the emulation computes what AMX does where there is.
TEST(Amx, TilesComputeWhatTheVectorKernelsDo) {
  if (!__builtin_cpu_supports("avx512bf16")) GTEST_SKIP() << "needs the conversions of AVX-512 to bfloat16";
  const auto& vectors = *cpu::linear_kernels_avx512(ElementType::bfloat16);
  const auto expect_same = [](const HeadResults& results, const HeadResults& expected, double tolerance) {
    expect_close(results.output, expected.output, tolerance, "output");
    expect_close(results.normalizer, expected.normalizer, tolerance, "normalizer");
    expect_close(results.s, expected.s, tolerance, "S");
    expect_close(results.z, expected.z, tolerance, "Z");
  };
  for (const auto map : {FeatureMapKind::elu, FeatureMapKind::elu01, FeatureMapKind::relu})
    for (const bool causal : {false, true})
      for (const auto& shape : {Shape{1, 1, 1, 1}, Shape{75, 75, 17, 33}, Shape{64, 64, 64, 64}, Shape{200, 200, 48, 80}})
        for (const int64_t hidden : {int64_t{0}, shape.key_len / 3}) {
          SCOPED_TRACE(std::string(feature_map_name(map)) + (causal ? " causal " : " full ") + text_of(shape) + " hidden " +
                       std::to_string(hidden));
          const auto inputs = make_inputs(problem_of(shape, at::kBFloat16, Masking::none, 1, 1), Protocol::forward, 1);
          const auto run = [&](const cpu::LinearKernels& kernels) {
            return run_head(kernels, map, causal, inputs, shape.key_len - hidden);
          };
          const auto emulated = run(*cpu::linear_kernels_amx_emulated());
          expect_same(emulated, run(vectors), 2e-2);
          if (cpu::is_available(cpu::InstructionSet::amx))
            expect_same(run(*cpu::linear_kernels_amx(ElementType::bfloat16)), emulated, 5e-3);
        }
}

TEST(Amx, IsRefusedWhereItDoesNotCompute) {
  Problem problem;
  problem.causal = true;
  const auto reason = [&](const char* spec, Protocol protocol = Protocol::forward) {
    return make_method(spec)->why_unsupported(problem, protocol).value_or("");
  };
  if (!cpu::is_available(cpu::InstructionSet::amx)) {
    EXPECT_CONTAINS(reason("linear:implementation=amx"), "linear_attention: implementation 'amx' is not ");
    EXPECT_CONTAINS(message_of<c10::ValueError>([] {
                      make_method("linear:implementation=amx")
                          ->forward(at::ones({1, 1, 2, 2}), at::ones({1, 1, 2, 2}), at::ones({1, 1, 2, 2}));
                    }),
                    "implementation 'amx' is not ");
    return;
  }
  EXPECT_CONTAINS(reason("linear:implementation=amx"),
                  "linear_attention: implementation 'amx' does not compute in Float; use 'avx512', ");
  problem.dtype = at::kBFloat16;
  EXPECT_EQ(reason("linear:implementation=amx"), "");
  EXPECT_CONTAINS(reason("linear:implementation=amx", Protocol::decode), "has no decoding step; use 'avx512'");
  EXPECT_EQ(reason("linear", Protocol::decode), "");
  EXPECT_CONTAINS(reason("taylor:implementation=amx"), "'amx' does not compute feature map 'taylor'; use 'avx512', ");
}
#endif

LinearRequest linear_request(const std::string& wanted, FeatureMapKind map, at::ScalarType dtype) {
  return {{wanted, dtype, at::kCPU, 64, 64}, map};
}

// The names of the implementations of linear attention for the CPU, of which an ARM processor has fewer than this list.
constexpr const char* kLinearNames[] = {"amx", "avx512", "avx2", "neon", "portable"};

TEST(InstructionSets, UnavailableKernelsAreRefused) {
  using enum FeatureMapKind;
  const auto error = [](const LinearRequest& request) { return linear_implementations().choose(request).error; };
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { cpu::choose_instruction_set("sse9"); }),
                  "kernel 'sse9' is not available here");
  EXPECT_CONTAINS(message_of<c10::ValueError>([] { cpu::choose_instruction_set("sse9"); }), "portable");
  EXPECT_EQ(error(linear_request("sse9", elu, at::kFloat)),
            "linear_attention: there is no implementation 'sse9' for cpu, expected auto, amx, avx512, avx2, neon, portable or "
            "composed");
  for (const auto set : {cpu::InstructionSet::amx, cpu::InstructionSet::avx512, cpu::InstructionSet::avx2,
                         cpu::InstructionSet::neon, cpu::InstructionSet::portable}) {
    const auto reason = cpu::why_unavailable(set);
    EXPECT_EQ(cpu::is_available(set), reason.empty());
    if (reason.empty()) continue;
    EXPECT_EQ(cpu::linear_kernels(set, ElementType::float32), nullptr);
    EXPECT_CONTAINS(error(linear_request(cpu::name_of(set), elu, at::kFloat)),
                    std::string("linear_attention: implementation '") + cpu::name_of(set) + "' " + reason + "; use '");
  }
}

// "auto" runs the first implementation that computes a request, and none where there is none; each that is named runs or is
// refused.
TEST(InstructionSets, AutoChoosesAnImplementationThatComputesTheRequest) {
  using enum FeatureMapKind;
  const auto& registry = linear_implementations();
  EXPECT_EQ(registry.find(linear_request("composed", elu, at::kFloat)), nullptr);
  for (const auto map : {elu, elu01, relu, taylor, polynomial2, favor, rff})
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      SCOPED_TRACE(std::string(feature_map_name(map)) + " in " + c10::toString(dtype));
      std::string first;
      for (const auto* name : kLinearNames) {
        const auto named = registry.choose(linear_request(name, map, dtype));
        EXPECT_EQ(named.implementation == nullptr, !named.error.empty());
        if (!named.implementation) continue;
        EXPECT_EQ(named.implementation->name(), name);
        if (first.empty()) first = name;
      }
      const auto* const chosen = registry.find(linear_request("auto", map, dtype));
      EXPECT_EQ(chosen ? chosen->name() : "", first);
      EXPECT_EQ(chosen != nullptr, map != rff && dtype != at::kHalf);
      if (dtype == at::kDouble) {
        EXPECT_EQ(first, map == rff ? "" : "portable");
      }
    }
  EXPECT_EQ(lsh_implementations().find({"auto", at::kDouble, at::kCPU, 64, 64})->name(), "portable");
  const auto best = std::string(cpu::name_of(cpu::available_instruction_sets().back()));
  EXPECT_EQ(registry.find(linear_request("auto", elu, at::kFloat))->name(), best);
}

TEST(InstructionSets, ANamedImplementationThatCannotComputeGivesItsReason) {
  using enum FeatureMapKind;
  const auto error = [](LinearRequest request) { return linear_implementations().choose(request).error; };
  EXPECT_EQ(error(linear_request("portable", rff, at::kFloat)),
            "linear_attention: implementation 'portable' does not compute feature map 'rff'; use 'composed'");
  auto other_update = linear_request("portable", favor, at::kFloat);
  other_update.update = LinearUpdate::sum;
  EXPECT_CONTAINS(error(other_update), "does not compute the update 'sum' with feature map 'favor'");
  other_update.wanted = "auto";
  EXPECT_EQ(linear_implementations().find(other_update), nullptr);
  auto on_meta = linear_request("portable", elu, at::kFloat);
  on_meta.device = at::kMeta;
  EXPECT_CONTAINS(error(on_meta), "implementation 'portable' runs on the CPU, not on meta");
  const auto best = std::string(cpu::name_of(cpu::available_instruction_sets().back()));
  if (best == "portable") return;
  Problem problem;
  problem.dtype = at::kDouble;
  for (const std::string method : {"linear", "lsh-1"}) {
    const auto label = method + ":implementation=" + best;
    EXPECT_EQ(make_method(label)->why_unsupported(problem, Protocol::forward),
              label + ": " + (method == "linear" ? "linear" : "lsh") + "_attention: implementation '" + best +
                  "' does not compute in Double; use 'portable' or 'composed'");
  }
}

#ifdef __x86_64__
// The error of a result in units in the last place. The unit of a subnormal number is the smallest positive float.
double ulps(float result, double exact) {
  if (exact > std::numeric_limits<float>::max()) return std::isinf(result) ? 0 : 1e9;
  const float nearest = float(exact);
  const double unit = std::max(double(std::nextafter(std::abs(nearest), INFINITY)) - std::abs(double(nearest)),
                               double(std::numeric_limits<float>::denorm_min()));
  return std::abs(double(result) - exact) / unit;
}

using Exp = void (*)(const float*, float*, int64_t);

// The functions of the instruction sets that this processor has, with their names.
std::vector<std::pair<std::string, Exp>> available(Exp avx2, Exp avx512) {
  std::vector<std::pair<std::string, Exp>> functions;
  for (const auto set : cpu::available_instruction_sets()) {
    if (set == cpu::InstructionSet::avx2) functions.emplace_back("avx2", avx2);
    if (set == cpu::InstructionSet::avx512) functions.emplace_back("avx512", avx512);
  }
  return functions;
}

TEST(VectorExp, OfNonpositiveNumbersIsExactToAFewUnitsInTheLastPlace) {
  for (const auto& [name, exp] : available(exp_nonpositive_avx2, exp_nonpositive_avx512)) {
    std::vector<float> x, y;
    for (double value = 0; value > -87.33; value -= 1.0 / 4096) x.push_back(float(value));
    for (float value = -1e-38f; value > -1; value *= 1.01f) x.push_back(value);
    while (x.size() % 16 != 0) x.push_back(0);
    y.resize(x.size());
    exp(x.data(), y.data(), int64_t(x.size()));
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i)
      worst = std::max(worst, ulps(y[i], std::exp(double(x[i]))) / (1.8 + 0.045 * std::abs(double(x[i]))));
    EXPECT_LE(worst, 1) << name;
    EXPECT_GT(worst, 0.1) << name;
    const float special[16] = {0, -0.0f, -INFINITY, NAN, -88, -200, -3e38f, -1e-45f};
    const float expected[8] = {1, 1, 0, NAN, 0, 0, 0, 1};
    float result[16];
    exp(special, result, 16);
    for (int i = 0; i < 8; ++i) {
      if (std::isnan(expected[i])) EXPECT_TRUE(std::isnan(result[i])) << name;
      else EXPECT_EQ(result[i], expected[i]) << name << " of " << special[i];
    }
  }
}

TEST(VectorExp, IsWithinTwoUnitsInTheLastPlace) {
  for (const auto& [name, exp] : available(exp_avx2, exp_avx512)) {
    std::vector<float> x, y;
    for (double value = -105; value < 90; value += 1.0 / 4096) x.push_back(float(value));
    for (float value = 1e-38f; value < 1; value *= 1.01f) x.push_back(value), x.push_back(-value);
    while (x.size() % 16 != 0) x.push_back(0);
    y.resize(x.size());
    exp(x.data(), y.data(), int64_t(x.size()));
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, ulps(y[i], std::exp(double(x[i]))));
    EXPECT_LE(worst, 2) << name;
    EXPECT_GT(worst, 0) << name;
    const float special[16] = {0, -0.0f, INFINITY, -INFINITY, NAN, 200, -200};
    float result[16];
    exp(special, result, 16);
    EXPECT_EQ(result[0], 1);
    EXPECT_EQ(result[1], 1);
    EXPECT_EQ(result[2], INFINITY);
    EXPECT_EQ(result[3], 0);
    EXPECT_TRUE(std::isnan(result[4]));
    EXPECT_EQ(result[5], INFINITY);
    EXPECT_EQ(result[6], 0);
  }
}
#endif

}  // namespace
}  // namespace attn
