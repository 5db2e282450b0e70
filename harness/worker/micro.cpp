// attnbench_micro: Google Benchmark over the registry, for work on single kernels. Sweeps measure with attnbench itself; here
// nothing is checked beforehand. Names read METHOD/protocol/causal/N, so that --benchmark_filter can choose.
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include "attn/agreement.h"
#include "attn/registry.h"
#include "harness/protocol/machine.h"

namespace {

void run(benchmark::State& state, const std::string& name, attn::Protocol protocol, bool causal) {
  attn::Problem problem;
  problem.query_len = problem.key_len = state.range(0);
  problem.causal = causal;
  const auto method = attn::make_method(name);
  if (const auto reason = method->why_unsupported(problem, protocol)) {
    state.SkipWithError(reason->c_str());
    return;
  }
  const auto inputs = attn::make_inputs(problem, protocol, 0);
  for (auto _ : state) benchmark::DoNotOptimize(attn::call(*method, inputs, protocol));
  const auto cost = method->cost(problem, protocol);
  using benchmark::Counter;
  state.counters["FLOP/s"] = Counter(cost.flops, Counter::kIsIterationInvariantRate, Counter::kIs1000);
  state.counters["least_B/s"] = Counter(cost.min_bytes, Counter::kIsIterationInvariantRate, Counter::kIs1000);
}

void register_all() {
  for (const auto* entry : attn::methods()) {
    for (const auto protocol : {attn::Protocol::forward, attn::Protocol::forward_backward}) {
      for (const bool causal : {false, true}) {
        const auto name = entry->name + (protocol == attn::Protocol::forward ? "/forward" : "/forward_backward") +
                          (causal ? "/causal" : "/full");
        benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { run(state, entry->name, protocol, causal); })
            ->RangeMultiplier(4)
            ->Range(512, 8192)
            ->Unit(benchmark::kMillisecond)
            ->UseRealTime();
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  at::set_num_threads(int(attnbench::available_processors()));
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
