// attnbench_micro: times the registered methods and single kernels with Google Benchmark, for those who optimise them. Results
// are not checked before they are timed; sweeps measure with attnbench itself. Large memory blocks are cached between calls. With
// --parts it prints tables of the parts of linear attention's kernels instead (parts.h). The benchmarks have these names, for
// --benchmark_filter:
//   METHOD/PROTOCOL/full or causal/DTYPE/heads:H/N     a call, as the harness times it
//   METHOD/step/DTYPE/heads:H/DIM                      a decoding step through the method
//   kernel/SET/step/heads:H/DIM                        the kernel of that step alone
//   recurrent/SET/RULE/step/heads:H/DIM                the kernel of a step of recurrent attention alone
//   state/heads:H/DIM                                  reading and writing the state of a step
//   kernel/SET/forward/causal/heads:8/N                the kernel of the forward pass of linear attention alone
// A kernel alone runs on one thread, without operator, checks and allocation, and so does the state. RULE is decay, delta or
// feature-delta.
// They report these counters:
//   FLOP/s              floating-point operations by the method's formula (linear attention: 4·D·M per token and head for the
//                       recurrence, and 3.5 times that with gradients)
//   B/s                 bytes of the minimum memory traffic
//   of_fma, of_copy     FLOP/s and B/s as shares of the machine's ceilings, which `attnbench doctor` shows
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>

#include <optional>
#include <string>
#include <vector>

#include "attn/cpu/instruction_set.h"
#include "attn/linear/cpu/implementation.h"
#include "attn/recurrent/cpu/implementation.h"
#include "attn/registry.h"
#include "harness/machine/machine.h"
#include "harness/worker/cpu/block_cache.h"
#include "harness/worker/cpu/ceilings.h"
#include "harness/worker/micro/parts.h"
#include "harness/worker/protocols/protocol.h"

namespace {

using benchmark::Counter;

const attnbench::Ceilings& ceilings() {
  static const auto measured = attnbench::measure_ceilings(at::get_num_threads());
  return measured;
}

void count(benchmark::State& state, double flops, double bytes, double threads = at::get_num_threads()) {
  const auto rate = [](double amount) { return Counter(amount, Counter::kIsIterationInvariantRate, Counter::kIs1000); };
  const double share = threads / at::get_num_threads();
  state.counters["FLOP/s"] = rate(flops);
  state.counters["B/s"] = rate(bytes);
  state.counters["of_fma"] = rate(flops / (ceilings().fma_float32_gflop_s * 1e9 * share));
  state.counters["of_copy"] = rate(bytes / (ceilings().copy_gb_s * 1e9));
}

struct Case {
  std::string method;
  attn::Protocol protocol;
  bool causal;
  at::ScalarType dtype;
  int64_t heads;
};

std::string name_of(const Case& c) {
  return c.method + "/" + attn::protocol_name(c.protocol) + (c.causal ? "/causal/" : "/full/") + attn::dtype_name(c.dtype) +
         "/heads:" + std::to_string(c.heads);
}

void call(benchmark::State& state, const Case& c) {
  attn::Problem problem;
  problem.heads = c.heads;
  problem.query_len = problem.key_len = state.range(0);
  problem.causal = c.causal;
  problem.dtype = c.dtype;
  const auto method = attn::make_method(c.method);
  if (const auto reason = method->why_unsupported(problem, c.protocol)) {
    state.SkipWithError(reason->c_str());
    return;
  }
  ceilings();
  const auto& protocol = attnbench::find_protocol(attn::protocol_name(c.protocol));
  const auto inputs = protocol.make_inputs(problem, /*seed=*/0, attnbench::InputDistribution::normal);
  const attnbench::BlockCache cache(attnbench::available_memory_bytes() / 4);
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(protocol.call(*method, inputs));
  state.SetLabel(method->implementation());
  const auto cost = method->cost(problem, c.protocol);
  count(state, cost.flops, cost.min_bytes);
}

attn::Problem token_problem(int64_t heads, int64_t dim) {
  attn::Problem problem;
  problem.heads = heads;
  problem.head_dim = problem.value_dim = dim;
  problem.query_len = problem.key_len = int64_t{1} << 24;
  problem.causal = true;
  return problem;
}

void step(benchmark::State& state, const std::string& name, int64_t heads) {
  const auto dim = state.range(0);
  const auto problem = token_problem(heads, dim);
  const auto method = attn::make_method(name);
  ceilings();
  const at::NoGradGuard no_grad;
  const auto decoding = method->begin_decoding(problem);
  const auto x = at::randn({1, heads, 1, dim});
  const attn::Inputs token{x, x, x, {.causal = true}};
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(method->step(*decoding, token));
  state.SetLabel(method->implementation());
  const auto cost = method->cost(problem, attn::Protocol::decode);
  count(state, cost.flops, cost.min_bytes);
}

// The parameters of each head of linear attention over `length` positions, q, k, v and output [H, N, D] and normalizer [H, N].
std::vector<attn::cpu::LinearHeadParams> causal_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                                      const at::Tensor& output, const at::Tensor& normalizer) {
  const auto length = q.size(1), dim = q.size(2);
  std::vector<attn::cpu::LinearHeadParams> heads(static_cast<size_t>(q.size(0)));
  for (size_t h = 0; h < heads.size(); ++h) {
    const auto rows = [&](const at::Tensor& x) { return attn::cpu::Rows{x.data_ptr<float>() + int64_t(h) * length * dim, dim}; };
    auto& head = heads[h];
    head = {};
    head.head_dim = head.feature_count = head.value_dim = dim;
    head.visible_keys = length;
    head.epsilon = 1e-6;
    head.q = rows(q);
    head.k = rows(k);
    head.v = rows(v);
    head.output = rows(output);
    head.normalizer = normalizer.data_ptr<float>() + int64_t(h) * length;
  }
  return heads;
}

void step_alone(benchmark::State& state, attn::cpu::InstructionSet set, int64_t heads) {
  using namespace attn::cpu;
  const auto dim = state.range(0);
  const auto& kernels = *linear_kernels(set, attn::ElementType::float32);
  ceilings();
  const auto s = at::zeros({heads, dim, dim}), z = at::zeros({heads, dim}), token = at::randn({heads, 1, dim}),
             output = at::empty({heads, 1, dim}), normalizer = at::empty({heads, 1});
  const auto all = causal_heads(token, token, token, output, normalizer);
  const auto scratch = at::empty({kernels.scratch_size(all[0]) + 1});
  for ([[maybe_unused]] auto _ : state) {
    for (size_t h = 0; h < all.size(); ++h)
      kernels.step(all[h], s.data_ptr<float>() + int64_t(h) * dim * dim, z.data_ptr<float>() + int64_t(h) * dim,
                   scratch.data_ptr<float>());
    benchmark::ClobberMemory();
  }
  const auto cost = attn::make_method("linear")->cost(token_problem(heads, dim), attn::Protocol::decode);
  count(state, cost.flops, cost.min_bytes, 1);
}

// A rule by which the state of recurrent attention changes.
struct RecurrentRule {
  const char* name;
  bool delta, feature_gates;
};
constexpr RecurrentRule kRecurrentRules[] = {{"decay", false, false}, {"delta", true, false}, {"feature-delta", true, true}};

void recurrent_step_alone(benchmark::State& state, attn::cpu::InstructionSet set, const RecurrentRule& rule, int64_t heads) {
  using namespace attn::cpu;
  const auto dim = state.range(0);
  const auto& kernels = *recurrent_kernels(set, attn::ElementType::float32);
  const auto s = at::zeros({heads, dim, dim}), token = at::randn({heads, dim}) / 8, output = at::empty({heads, dim}),
             g = at::full({heads, dim}, -0.05), beta = at::full({heads}, 0.5);
  std::vector<RecurrentHeadParams> all(static_cast<size_t>(heads));
  for (size_t h = 0; h < all.size(); ++h) {
    const auto row = [&](const at::Tensor& x) { return x.data_ptr<float>() + int64_t(h) * dim; };
    auto& head = all[h];
    head = {};
    head.key_dim = head.value_dim = dim;
    head.delta = rule.delta;
    head.feature_gates = rule.feature_gates;
    head.scale = 1;
    head.q = head.k = head.v = {row(token), dim};
    head.output = {row(output), dim};
    head.g = row(g);
    head.beta = rule.delta ? beta.data_ptr<float>() + h : nullptr;
    head.g_stride = rule.feature_gates ? dim : 1;
    head.beta_stride = 1;
  }
  const auto scratch = at::empty({kernels.scratch_size(all[0], /*backward=*/false) + 1});
  for ([[maybe_unused]] auto _ : state) {
    for (size_t h = 0; h < all.size(); ++h)
      kernels.step(all[h], s.data_ptr<float>() + int64_t(h) * dim * dim, scratch.data_ptr<float>());
    benchmark::ClobberMemory();
  }
}

#ifdef __SANITIZE_ADDRESS__
#define ATTNBENCH_ADD_CLONES  // AddressSanitizer cannot run the code that selects a clone
#else
#define ATTNBENCH_ADD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
ATTNBENCH_ADD_CLONES void add_one(float* x, int64_t size) {
  for (int64_t i = 0; i < size; ++i) x[i] += 1;
}

// Reads and writes the state that a decoding step reads and writes, on one thread: the least time that a step can take.
void state_alone(benchmark::State& state, int64_t heads) {
  const auto dim = state.range(0);
  const auto s = at::zeros({heads, dim + 1, dim});
  for ([[maybe_unused]] auto _ : state) {
    add_one(s.data_ptr<float>(), s.numel());
    benchmark::ClobberMemory();
  }
}

// The causal forward pass of 8 heads of 64 without operator, checks, allocation and threads.
void forward_alone(benchmark::State& state, attn::cpu::InstructionSet set) {
  using namespace attn::cpu;
  constexpr int64_t kHeads = 8, kDim = 64;
  const auto length = state.range(0);
  const auto& kernels = *linear_kernels(set, attn::ElementType::float32);
  const auto q = at::randn({kHeads, length, kDim}), k = at::randn_like(q), v = at::randn_like(q), output = at::empty_like(q);
  const auto normalizer = at::empty({kHeads, length});
  const auto all = causal_heads(q, k, v, output, normalizer);
  const auto scratch = at::empty({kernels.scratch_size(all[0]) + 1});
  auto memory = at::zeros({state_size(all[0])});
  for ([[maybe_unused]] auto _ : state) {
    for (const auto& head : all) {
      memory.zero_();
      auto* s = memory.data_ptr<float>();
      kernels.forward(head, 0, length, s, s + padded(kDim) * padded(kDim), scratch.data_ptr<float>());
    }
    benchmark::ClobberMemory();
  }
  attn::Problem problem;
  problem.query_len = problem.key_len = length;
  problem.causal = true;
  const auto cost = attn::make_method("linear")->cost(problem, attn::Protocol::forward);
  ceilings();
  count(state, cost.flops, cost.min_bytes, 1);
}

void register_calls() {
  std::vector<Case> cases;
  for (const auto* entry : attn::methods())
    for (const auto protocol : {attn::Protocol::forward, attn::Protocol::forward_backward})
      for (const bool causal : {false, true}) cases.push_back({entry->name, protocol, causal, at::kFloat, 8});
  for (const auto protocol : {attn::Protocol::forward, attn::Protocol::forward_backward}) {
    for (const bool causal : {false, true}) {
      for (const auto* name : {"linear", "lsh-1"}) {
        cases.push_back({name, protocol, causal, at::kBFloat16, 8});
        cases.push_back({name, protocol, causal, at::kFloat, 1});
      }
      for (const auto set : attn::cpu::available_instruction_sets())
        cases.push_back({std::string("linear:implementation=") + name_of(set), protocol, causal, at::kFloat, 8});
    }
  }
  for (const auto& c : cases)
    benchmark::RegisterBenchmark(name_of(c).c_str(), [c](benchmark::State& state) { call(state, c); })
        ->Arg(64)
        ->Arg(512)
        ->Arg(2048)
        ->Arg(8192)
        ->Arg(65536)
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
}

void register_steps() {
  // The states of 8 heads fit the first-level cache, and those of 32768 heads exceed the last level.
  for (const int64_t heads : {8, 32768}) {
    const auto suffix = "step/float32/heads:" + std::to_string(heads);
    for (const std::string name : {"linear", "linear-chunked"})
      benchmark::RegisterBenchmark((name + "/" + suffix).c_str(), [=](benchmark::State& state) { step(state, name, heads); })
          ->Arg(32)
          ->Arg(64)
          ->Unit(benchmark::kMicrosecond)
          ->UseRealTime();
    benchmark::RegisterBenchmark(("state/heads:" + std::to_string(heads)).c_str(),
                                 [=](benchmark::State& state) { state_alone(state, heads); })
        ->Arg(32)
        ->Arg(64)
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
    for (const auto set : attn::cpu::available_instruction_sets())
      for (const auto& rule : kRecurrentRules)
        benchmark::RegisterBenchmark(
            ("recurrent/" + std::string(name_of(set)) + "/" + rule.name + "/step/heads:" + std::to_string(heads)).c_str(),
            [=](benchmark::State& state) { recurrent_step_alone(state, set, rule, heads); })
            ->Arg(64)
            ->Arg(128)
            ->Unit(benchmark::kMicrosecond)
            ->UseRealTime();
    for (const auto set : attn::cpu::available_instruction_sets())
      benchmark::RegisterBenchmark(("kernel/" + std::string(name_of(set)) + "/step/heads:" + std::to_string(heads)).c_str(),
                                   [=](benchmark::State& state) { step_alone(state, set, heads); })
          ->Arg(32)
          ->Arg(64)
          ->Unit(benchmark::kMicrosecond)
          ->UseRealTime();
  }
}

void register_forwards() {
  for (const auto set : attn::cpu::available_instruction_sets())
    benchmark::RegisterBenchmark(("kernel/" + std::string(name_of(set)) + "/forward/causal/heads:8").c_str(),
                                 [=](benchmark::State& state) { forward_alone(state, set); })
        ->Arg(64)
        ->Arg(512)
        ->Arg(2048)
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--parts") {
    attnbench::print_parts();
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  at::set_num_threads(int(attnbench::available_processors()));
  register_calls();
  register_steps();
  register_forwards();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
