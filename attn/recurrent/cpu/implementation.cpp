// The implementations of recurrent attention for the CPU, which register themselves with recurrent_implementations().
#include "attn/recurrent/cpu/implementation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <cstring>
#include <functional>
#include <utility>

#include "attn/cpu/kernel_family.h"
#include "attn/cpu/tensors.h"
#include "attn/recurrent/cpu/heads.h"

namespace attn::cpu {
namespace {

using at::Tensor;

const KernelFamily<RecurrentKernels, ImplementationRequest>& recurrent_family() {
  static const KernelFamily<RecurrentKernels, ImplementationRequest> all{
      .members = {{InstructionSet::avx512, recurrent_kernels_avx512},
                  {InstructionSet::avx2, recurrent_kernels_avx2},
                  {InstructionSet::neon, recurrent_kernels_neon},
                  {InstructionSet::portable, recurrent_kernels_portable}}};
  return all;
}

// Copies a state [K,V] to a padded one, whose padding becomes zero, or back. If `state` is null, `to` becomes zero.
void pad_state(const char* state, const RecurrentHeadParams& p, size_t number_bytes, char* to) {
  std::memset(to, 0, size_t(state_size(p)) * number_bytes);
  for (int64_t d = 0; state && d < p.key_dim; ++d)
    std::memcpy(to + size_t(d * padded(p.value_dim)) * number_bytes, state + size_t(d * p.value_dim) * number_bytes,
                size_t(p.value_dim) * number_bytes);
}
void unpad_state(const char* padded_state, const RecurrentHeadParams& p, size_t number_bytes, char* to) {
  for (int64_t d = 0; d < p.key_dim; ++d)
    std::memcpy(to + size_t(d * p.value_dim) * number_bytes, padded_state + size_t(d * padded(p.value_dim)) * number_bytes,
                size_t(p.value_dim) * number_bytes);
}

// Distributes sequences and heads over threads.
class RecurrentPass {
 public:
  RecurrentPass(const RecurrentKernels& kernels, const RecurrentArguments& a, const RecurrentHeads& heads, bool backward)
      : heads_(heads),
        sequences_(a),
        value_heads_(a.v.size(1)),
        number_bytes_(heads.accumulator().dtype().itemsize()),
        scratch_(state_size(heads.common()) + kernels.scratch_size(heads.common(), backward), heads.accumulator()) {}

  // The states of all sequences, [B or N,W,K,V].
  Tensor states() const {
    const auto& p = heads_.common();
    const auto rows = value_heads_ == 0 ? 0 : heads_.count() / value_heads_ * sequences_.count();
    return at::empty({rows, value_heads_, p.key_dim, p.value_dim}, heads_.accumulator());
  }
  // A sequence of a head. `state` is padded; `checkpoints` is null if there are none.
  struct Task {
    RecurrentHeadParams params;
    int64_t begin, end;
    void *state, *checkpoints, *scratch;
  };

  // Calls `work` for all sequences of all heads. The state of a task is copied from `initial`, or zero if that is undefined, and
  // is copied to `final` afterwards unless that is undefined. One thread processes heads that share q and k, in a fixed order.
  void run(const Tensor& initial, const Tensor& final, const Tensor& checkpoints,
           const std::function<void(const Task&)>& work) const {
    const auto sharing = heads_.sharing(), groups = heads_.count() / sharing;
    const auto part = [](const Tensor& x, int64_t index, int64_t count) {
      return x.defined() && count > 0 ? static_cast<char*>(x.data_ptr()) + int64_t(x.nbytes()) / count * index : nullptr;
    };
    at::parallel_for(0, groups * sequences_.count(), 1, [&](int64_t begin, int64_t end) {
      auto* const state = static_cast<char*>(scratch_.for_this_thread());
      const auto size = state_size(heads_.common());
      for (auto task = begin; task < end; ++task) {
        const auto group = task / sequences_.count(), sequence = task % sequences_.count();
        for (auto head = group * sharing; head < (group + 1) * sharing; ++head) {
          const auto params = heads_.head(head);
          const auto states = heads_.count() * sequences_.count();
          const auto row = head / value_heads_ * sequences_.count() + sequence;
          const auto index = row * value_heads_ + head % value_heads_;
          pad_state(part(initial, index, states), params, number_bytes_, state);
          auto* of_head = part(checkpoints, head, heads_.count());
          if (of_head) of_head += size_t(sequences_.first_checkpoint(sequence) * size) * number_bytes_;
          work({params, sequences_.begin(sequence), sequences_.end(sequence), state, of_head,
                state + size_t(size) * number_bytes_});
          if (final.defined()) unpad_state(state, params, number_bytes_, part(final, index, states));
        }
      }
    });
  }

 private:
  const RecurrentHeads& heads_;
  RecurrentSequences sequences_;
  int64_t value_heads_;
  size_t number_bytes_;
  ThreadScratch scratch_;
};

// A decoding step of all heads, whose tensors and scratch memory are set up once.
class BoundRecurrentStep final : public BoundStep {
 public:
  BoundRecurrentStep(const RecurrentKernels& kernels, RecurrentHeads heads, Tensor state, int64_t workers)
      : kernels_(kernels),
        heads_(std::move(heads)),
        state_(std::move(state)),
        scratch_(at::empty({workers, kernels.scratch_size(heads_.common(), /*backward=*/false)}, heads_.accumulator())),
        implementation_(std::string("kernel/") + kernels.name) {}

  void run(int64_t begin, int64_t end, int64_t worker) noexcept override {
    const auto bytes_of = [](const Tensor& x, int64_t count) { return count == 0 ? 0 : int64_t(x.nbytes()) / count; };
    auto* const scratch = static_cast<char*>(scratch_.data_ptr()) + bytes_of(scratch_, scratch_.size(0)) * worker;
    const auto state_bytes = bytes_of(state_, heads_.count());
    for (auto head = begin; head < end; ++head)
      kernels_.step(heads_.head(head), static_cast<char*>(state_.data_ptr()) + state_bytes * head, scratch);
  }
  const std::string& implementation() const override { return implementation_; }

 private:
  const RecurrentKernels& kernels_;
  RecurrentHeads heads_;
  Tensor state_, scratch_;
  std::string implementation_;
};

class CpuRecurrent final : public RecurrentImplementation {
 public:
  explicit CpuRecurrent(const RecurrentKernels& kernels) : kernels_(kernels) {}

  std::string name() const override { return kernels_.name; }

  RecurrentResults forward(const RecurrentArguments& a, bool gradients) const override {
    RecurrentHeads heads(a);
    const auto output = empty_in_layout_of(a.v, a.v.sym_sizes());
    heads.set_output(output);
    const RecurrentPass pass(kernels_, a, heads, /*backward=*/false);
    const auto final_state = pass.states();
    const auto checkpoints = at::empty_symint(checkpoint_sizes(a, gradients), heads.accumulator());
    pass.run(
        a.initial_state ? a.initial_state->contiguous() : Tensor(), final_state, gradients ? checkpoints : Tensor(),
        [&](const RecurrentPass::Task& t) { kernels_.forward(t.params, t.begin, t.end, t.state, t.checkpoints, t.scratch); });
    return {output, final_state, checkpoints};
  }

  Tensor end_state(const RecurrentArguments& a) const override {
    RecurrentHeads heads(a);
    heads.omit_queries();
    const RecurrentPass pass(kernels_, a, heads, /*backward=*/false);
    auto final_state = pass.states();
    pass.run(a.initial_state ? a.initial_state->contiguous() : Tensor(), final_state, {},
             [&](const RecurrentPass::Task& t) { kernels_.forward(t.params, t.begin, t.end, t.state, nullptr, t.scratch); });
    return final_state;
  }

  RecurrentGradients backward(const RecurrentArguments& a, const Tensor& checkpoints, const Tensor& grad_output,
                              const Tensor& grad_final_state) const override {
    RecurrentHeads heads(a);
    const auto like = [](const Tensor& x) { return empty_in_layout_of(x, x.sym_sizes()); };
    const auto gate_like = [&](const std::optional<Tensor>& x) {
      return !x ? Tensor() : x->dim() == 4 ? like(*x) : at::empty(x->sizes(), x->options());
    };
    const auto of_keys = [&](const Tensor& x) {
      return heads.sharing() > 1 ? at::empty(x.sizes(), heads.accumulator()) : like(x);
    };
    RecurrentGradients gradients{of_keys(a.q), of_keys(a.k), like(a.v), gate_like(a.g), gate_like(a.beta), {}};
    heads.set_gradients(grad_output.defined() ? grad_output : at::zeros(a.v.sizes(), a.v.options()), gradients);
    const RecurrentPass pass(kernels_, a, heads, /*backward=*/true);
    if (a.initial_state) gradients.initial_state = pass.states();
    pass.run(
        grad_final_state.defined() ? grad_final_state.contiguous() : Tensor(), gradients.initial_state, checkpoints,
        [&](const RecurrentPass::Task& t) { kernels_.backward(t.params, t.begin, t.end, t.checkpoints, t.state, t.scratch); });
    // Where heads share q and k, the sums are converted to the dtype and layout of the inputs.
    for (const auto& [gradient, input] : {std::pair<Tensor&, const Tensor&>{gradients.q, a.q}, {gradients.k, a.k}})
      if (heads.sharing() > 1) gradient = like(input).copy_(gradient);
    return gradients;
  }

  Tensor step(const RecurrentArguments& token, const Tensor& state) const override {
    auto output = at::empty({token.v.size(0), token.v.size(1), 1, token.v.size(3)}, token.q.options());
    const auto workers = step_workers(int64_t(state.nbytes()));
    const auto count = token.v.size(0) * token.v.size(1);
    if (count == 0) return output;
    run_step(*bind_step(token, output, state, workers), count, workers);
    return output;
  }

  std::unique_ptr<BoundStep> bind_step(const RecurrentArguments& token, const Tensor& output, const Tensor& state,
                                       int64_t workers) const override {
    RecurrentHeads heads(token);
    heads.set_output(output);
    return std::make_unique<BoundRecurrentStep>(kernels_, std::move(heads), state, workers);
  }

  double working_bytes(const Problem& p, bool feature_gates, bool backward) const override {
    RecurrentHeadParams params{};
    params.key_dim = p.head_dim;
    params.value_dim = p.value_dim;
    params.feature_gates = feature_gates;
    const auto number = double(c10::elementSize(accumulator_dtype(p.dtype)));
    const auto heads = double(p.batch * p.value_head_count()), threads = double(at::get_num_threads());
    const int64_t stored = p.query_len / kCheckpoint + 1;
    const auto checkpoints = backward ? double(stored) : 0;
    const auto scratch = double(state_size(params) + kernels_.scratch_size(params, backward));
    const auto widened = backward && p.value_head_count() > p.heads && p.element_bytes() < number
                             ? number * (p.query_bytes() + p.key_bytes()) / p.element_bytes()
                             : 0;
    return number * (heads * (double(p.head_dim * p.value_dim) + checkpoints * double(state_size(params))) + threads * scratch) +
           widened;
  }

 private:
  const RecurrentKernels& kernels_;
};

const bool recurrent_registered =
    (recurrent_implementations().register_cpu(implementations_of<RecurrentImplementation, CpuRecurrent>(recurrent_family())),
     true);

}  // namespace

const RecurrentKernels* recurrent_kernels(InstructionSet set, ElementType element) {
  return recurrent_family().table(set, element);
}

}  // namespace attn::cpu
