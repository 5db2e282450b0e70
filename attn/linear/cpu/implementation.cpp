// Registers the CPU kernels of linear attention, and calls them forward, backward and in decoding.
#include "attn/linear/cpu/implementation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <memory>
#include <string>
#include <utility>

#include "attn/cpu/kernel_family.h"
#include "attn/linear/cpu/heads.h"
#include "attn/linear/cpu/threads.h"
#include "attn/linear/value_shift.h"

namespace attn::cpu {
namespace {

using at::Tensor;

const KernelFamily<LinearKernels, LinearRequest>& family() {
  static const KernelFamily<LinearKernels, LinearRequest> all{
      .members = {{InstructionSet::amx, linear_kernels_amx,
                   [](const LinearRequest& request) { return why_not_map(request, is_entrywise(request.map)); }},
                  {InstructionSet::avx512, linear_kernels_avx512},
                  {InstructionSet::avx2, linear_kernels_avx2},
                  {InstructionSet::neon, linear_kernels_neon},
                  {InstructionSet::portable, linear_kernels_portable}},
      .why_not_any = [](const LinearRequest& request) { return why_not_map(request, computes_feature_map(request.map)); }};
  return all;
}

// A decoding step of all heads, whose tensors and scratch memory are set up once.
class BoundLinearStep final : public BoundStep {
 public:
  BoundLinearStep(const LinearKernels& kernels, LinearHeads heads, LinearDecodingState state, int64_t workers)
      : kernels_(kernels),
        heads_(std::move(heads)),
        state_(std::move(state)),
        scratch_(at::empty({workers, kernels.scratch_size(heads_.common())}, heads_.accumulator())),
        implementation_(std::string("kernel/") + kernels.step_name) {}

  void run(int64_t begin, int64_t end, int64_t worker) noexcept override {
    auto* const scratch = part(scratch_, scratch_.size(0), worker);
    for (auto head = begin; head < end; ++head)
      kernels_.step(heads_.head(head), part(state_.s, heads_.count(), head), part(state_.z, heads_.count(), head), scratch);
  }
  const std::string& implementation() const override { return implementation_; }

 private:
  // The beginning of part `index` of a tensor that is divided into `count` equal parts.
  static char* part(const Tensor& x, int64_t count, int64_t index) {
    return static_cast<char*>(x.data_ptr()) + int64_t(x.nbytes()) / count * index;
  }

  const LinearKernels& kernels_;
  LinearHeads heads_;
  LinearDecodingState state_;
  Tensor scratch_;
  std::string implementation_;
};

class CpuLinear final : public LinearImplementation {
 public:
  explicit CpuLinear(const LinearKernels& kernels) : kernels_(kernels) {}

  std::string name() const override { return kernels_.name; }
  std::string step_name() const override { return kernels_.step_name; }

  std::tuple<Tensor, Tensor> forward(const LinearArguments& a) const override {
    LinearHeads heads(a.q, a.k, a.v, a.key_lengths, a.map, a.epsilon);
    const auto output = at::empty({a.q.size(0), a.q.size(1), a.q.size(2), a.v.size(3)}, a.q.options());
    const auto normalizer =
        at::empty({a.q.size(0), a.q.size(1), a.q.size(2), normalizer_numbers(heads.common().update)}, heads.accumulator());
    heads.set_results(output, normalizer);
    const LinearThreads threads(kernels_, heads);
    if (a.causal) {
      const auto splits = threads.scanned_splits(heads.query_len());
      threads.run(splits, threads.initial_states(splits, kernels_.add_keys, /*backwards=*/false), kernels_.forward);
    } else {
      threads.run(threads.independent_splits(heads.query_len()), threads.sum(heads.key_len(), kernels_.add_keys), kernels_.read);
    }
    return {output, normalizer};
  }

  std::tuple<Tensor, Tensor, Tensor> backward(const LinearArguments& a, const Tensor& grad_output,
                                              const Tensor& normalizer) const override {
    LinearHeads heads(a.q, a.k, a.v, a.key_lengths, a.map, a.epsilon);
    heads.set_value_shift(value_shift(a.v, a.key_lengths, accumulator_dtype(a.v.scalar_type())));
    const auto like = [](const Tensor& x) { return at::empty(x.sizes(), x.options()); };
    const auto grad_q = like(a.q), grad_k = like(a.k), grad_v = like(a.v);
    const auto dense_normalizer = normalizer.contiguous();
    heads.set_results({}, dense_normalizer);
    heads.set_gradients(grad_output, at::empty({a.q.size(0), a.q.size(1), a.q.size(2), 1}, dense_normalizer.options()), grad_q,
                        grad_k, grad_v);
    const LinearThreads threads(kernels_, heads);
    const auto splits_of = [&](int64_t length) {
      return a.causal ? threads.scanned_splits(length) : threads.independent_splits(length);
    };

    const auto queries = splits_of(heads.query_len());
    const auto seen_keys = a.causal ? threads.initial_states(queries, kernels_.add_keys_transposed, /*backwards=*/false)
                                    : threads.sum(heads.key_len(), kernels_.add_keys_transposed);
    threads.run(queries, seen_keys,
                [&](const LinearHeadParams& params, int64_t begin, int64_t end, void* t, void* z, void* scratch) {
                  kernels_.backward_queries(params, begin, end, a.causal, t, z, scratch);
                });

    const auto keys = splits_of(heads.key_len());
    const auto seeing_queries = a.causal ? threads.initial_states(keys, kernels_.add_queries, /*backwards=*/true)
                                         : threads.sum(heads.query_len(), kernels_.add_queries);
    threads.run(keys, seeing_queries,
                [&](const LinearHeadParams& params, int64_t begin, int64_t end, void* r, void* y, void* scratch) {
                  kernels_.backward_keys(params, begin, end, a.causal, r, y, scratch);
                });
    return {grad_q, grad_k, grad_v};
  }

  void add(const Tensor& k, const Tensor& v, const LinearDecodingState& state, const FeatureMapSpec& map) const override {
    const LinearHeads heads(k, k, v, {}, map, /*epsilon=*/0);
    const LinearThreads threads(kernels_, heads);
    const auto features = heads.common().feature_count, values = heads.common().value_dim;
    // Views of the matrix, the vector and the scale of states [heads, 1, state size], without padding.
    const auto matrix_of = [&](const Tensor& padded_state) {
      return padded_state.narrow(2, 0, heads.padded_features() * heads.padded_values())
          .view({heads.count(), heads.padded_features(), heads.padded_values()})
          .narrow(1, 0, features)
          .narrow(2, 0, values);
    };
    const auto vector_of = [&](const Tensor& padded_state) {
      return padded_state.narrow(2, heads.padded_features() * heads.padded_values(), features).squeeze(1);
    };
    const auto scale_of = [&](const Tensor& padded_state) { return padded_state.narrow(2, threads.scale_offset(), 1); };
    const auto s = state.s.flatten(0, 1), z = state.z.flatten(0, 1).narrow(1, 0, features);
    const auto scale = [&] { return state.z.flatten(0, 1).narrow(1, features, 1).unsqueeze(1); };

    const auto added = threads.sum(heads.key_len(), kernels_.add_keys);
    const auto before = at::zeros_like(added);
    matrix_of(before).copy_(s), vector_of(before).copy_(z);
    if (heads.scales()) scale_of(before).copy_(scale());
    const auto sum = threads.total(at::cat({before, added}, 1));
    s.copy_(matrix_of(sum)), z.copy_(vector_of(sum));
    if (heads.scales()) scale().copy_(scale_of(sum));
  }

  Tensor step(const Tensor& q, const Tensor& k, const Tensor& v, const LinearDecodingState& state, const FeatureMapSpec& map,
              double epsilon) const override {
    TORCH_CHECK_VALUE(!c10::GradMode::is_enabled() || !(q.requires_grad() || k.requires_grad() || v.requires_grad()),
                      "linear attention: a decoding step of implementation '", name(),
                      "' records no gradients; a step of 'composed' does");
    auto output = at::empty({q.size(0), q.size(1), 1, v.size(3)}, q.options());
    const auto workers = step_workers(int64_t(state.s.nbytes()));
    const auto count = q.size(0) * q.size(1);
    if (count == 0) return output;
    run_step(*bind_step(q, k, v, output, state, map, epsilon, workers), count, workers);
    return output;
  }

  std::unique_ptr<BoundStep> bind_step(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& output,
                                       const LinearDecodingState& state, const FeatureMapSpec& map, double epsilon,
                                       int64_t workers) const override {
    LinearHeads heads(q, k, v, {}, map, epsilon);
    heads.set_results(output, {});
    return std::make_unique<BoundLinearStep>(kernels_, std::move(heads), state, workers);
  }

  double state_numbers(const Problem& p, int64_t features, bool backward) const override {
    return double(p.batch) * double(p.heads) * double(features) * double(p.value_dim) * (backward ? 2 : 1);
  }

 private:
  const LinearKernels& kernels_;
};

const bool registered =
    (linear_implementations().register_cpu(implementations_of<LinearImplementation, CpuLinear>(family())), true);

}  // namespace

const LinearKernels* linear_kernels(InstructionSet set, ElementType element) { return family().table(set, element); }

}  // namespace attn::cpu
