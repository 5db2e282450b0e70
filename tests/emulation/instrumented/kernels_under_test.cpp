// Makes the runs: passes and decoding steps of all methods with CUDA kernels.
#include "tests/emulation/instrumented/kernels_under_test.h"

#include "tests/emulation/cuda.h"
#include "tests/support/method_helpers.h"

namespace attn::emulation {
namespace {

std::vector<KernelRun> all_runs() {
  std::vector<KernelRun> runs;
  const auto add = [&](const std::string& spec, at::ScalarType dtype, const Shape& shape, Masking masking, int64_t batch) {
    const auto name = spec + " " + dtype_name(dtype) + " " + text_of(shape) + " " + name_of(masking);
    const auto problem = problem_of(shape, dtype, masking, batch, /*heads=*/1);
    if (make_method(spec)->why_unsupported(problem, Protocol::forward_backward)) return;
    runs.push_back({name, [=] {
                      // Enough multiprocessors that long sequences have several splits, of two chunks and more.
                      set_multiprocessors(4);
                      const auto method = make_method(spec);
                      call(*method, inputs_of(problem, Protocol::forward_backward), Protocol::forward_backward);
                    }});
  };
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble})
    for (const auto* spec : {"linear:implementation=cuda", "linear:implementation=cuda-tf32", "linear:implementation=cuda-plain",
                             "lsh:rounds=2,chunk=80,buckets=4,implementation=cuda"}) {
      add(spec, dtype, {260, 260, 64, 64}, Masking::causal, 1);
      for (const auto masking : {Masking::causal_and_key_lengths, Masking::none})
        add(spec, dtype, {150, 150, 32, 16}, masking, 2);
      add(spec, dtype, {70, 70, 128, 128}, Masking::causal, 1);
      add(spec, dtype, {70, 70, 128, 128}, Masking::none, 1);
    }
  add("lsh:rounds=2,chunk=40,buckets=8,profile=fast-transformers,implementation=cuda", at::kFloat, {100, 100, 16, 16},
      Masking::causal, 1);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble})
    for (const auto& [head_dim, value_dim] : {std::pair(64, 64), {20, 520}}) {
      const auto problem = problem_of({3, 3, head_dim, value_dim}, dtype, Masking::causal, 2, 1);
      runs.push_back({"steps " + std::string(dtype_name(dtype)) + " " + text_of({3, 3, head_dim, value_dim}), [=] {
                        const auto method = make_method("linear:implementation=cuda-plain");
                        decode_from(*method, make_inputs(problem, Protocol::decode, 1), 0);
                      }});
    }
  return runs;
}

}  // namespace

const std::vector<KernelRun>& kernel_runs() {
  static const auto runs = all_runs();
  return runs;
}

}  // namespace attn::emulation
