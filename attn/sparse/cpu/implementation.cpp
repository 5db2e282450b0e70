// The implementations of sparse attention for the CPU, which register themselves with sparse_implementations().
#include "attn/sparse/implementation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "attn/cpu/kernel_family.h"
#include "attn/cpu/tensors.h"
#include "attn/sparse/chosen_parts.h"
#include "attn/sparse/cpu/kernels.h"

namespace attn::cpu {
namespace {

using at::Tensor;

const KernelFamily<SparseKernels, ImplementationRequest>& sparse_family() {
  static const KernelFamily<SparseKernels, ImplementationRequest> all{
      .members = {{InstructionSet::avx512, sparse_kernels_avx512},
                  {InstructionSet::avx2, sparse_kernels_avx2},
                  {InstructionSet::neon, sparse_kernels_neon},
                  {InstructionSet::portable, sparse_kernels_portable}}};
  return all;
}

// For one head of the output, the rows begin … end − 1 of a part, or all rows of `parts` parts that are joined one after another.
struct SparseTask {
  int64_t head;             // counted over the batch
  const VisiblePart* part;  // the first part
  int64_t begin, end;
  int64_t pairs;  // how many pairs are computed, visible or not
  int64_t parts = 1;
};

// The number of pairs of rows with the ranges of keys that their tiles see.
int64_t pairs_of(const VisiblePart& part, int64_t begin, int64_t end, int64_t tile) {
  int64_t pairs = end - begin;  // Rows that see no key are written, too.
  for (; begin < end; begin += tile) {
    const auto rows = std::min(tile, end - begin);
    Interval one, other;
    part.keys_that_are_seen(begin, begin + rows, one, other);
    pairs += rows * (one.size() + other.size());
  }
  return pairs;
}

// The tensors of a call, and the distribution of its heads over threads.
class SparsePass {
 public:
  SparsePass(const SparseKernels& kernels, const SparseArguments& a)
      : kernels_(kernels),
        parts_(visible_parts_of(a)),
        batch_(a.q.size(0)),
        heads_(a.output_heads()),
        length_(a.q.size(2)),
        q_(with_dense_rows(a.q)),
        k_(with_dense_rows(a.k)),
        v_(with_dense_rows(a.v)),
        numbers_(a.q.options().dtype(accumulator_dtype(a.q.scalar_type()))) {
    common_.dim = a.q.size(3);
    common_.value_dim = a.v.size(3);
    common_.scale = a.scale;
    if (a.sinks) sinks_ = a.sinks->to(at::kDouble).contiguous();
    for (const auto& stages : parts_) stages_ = std::max(stages_, stages.size());
    if (a.chosen_blocks) {
      chosen_heads_ = a.chosen_blocks->size(1);
      chosen_ = chosen_parts(a, are_divided_evenly(head_groups()) ? 1 : threads());
      stages_ = 2;
    }
  }

  SparseResults forward(const SparseArguments& a) {
    SparseResults results{at::empty({batch_, heads_, length_, a.v.size(3)}, a.q.options()),
                          at::empty({batch_, heads_, length_}, numbers_)};
    output_ = results.output;
    log_sum_exp_ = results.log_sum_exp;
    const bool rounds = a.q.scalar_type() != numbers_.dtype().toScalarType();
    if (stages_ > 1 && rounds) partial_output_ = at::empty({batch_, heads_, length_, padded(a.v.size(3))}, numbers_);
    const ThreadScratch scratch(kernels_.scratch_size(common_), numbers_);
    for (size_t stage = 0; stage < stages_; ++stage)
      share(tasks_of(stage, 0, batch_ * heads_, threads()), threads(), [&](const SparseTask& task, int64_t) {
        const auto params = head(task.head);
        for_each_part(task, [&](const VisiblePart& part, int64_t begin, int64_t end) {
          kernels_.forward(params, part, stage > 0, begin, end, scratch.for_this_thread());
        });
      });
    return results;
  }

  SparseGradients backward(const SparseArguments& a, const SparseResults& results, const Tensor& grad_output,
                           const Tensor& grad_log_sum_exp) {
    output_ = with_dense_rows(results.output);
    log_sum_exp_ = results.log_sum_exp.contiguous();
    grad_output_ = grad_output.defined() ? with_dense_rows(grad_output) : at::zeros_like(output_);
    if (grad_log_sum_exp.defined()) grad_log_sum_exp_ = grad_log_sum_exp.contiguous();
    delta_ = at::empty({batch_, heads_, length_}, numbers_);
    at::parallel_for(0, batch_ * heads_, 1, [&](int64_t begin, int64_t end) {
      for (auto index = begin; index < end; ++index) kernels_.store_delta(head(index), 0, length_);
    });
    grad_q_ = accumulator_like(q_);
    grad_k_ = accumulator_like(k_);
    grad_v_ = accumulator_like(v_);
    const ThreadScratch scratch(kernels_.scratch_size(common_), numbers_);
    // Heads that share a head of q, k or v are a group. One thread processes a group, unless the groups cannot be distributed
    // evenly over the threads: then they are processed one after another, and the rows of each are distributed over the threads,
    // each of which adds to gradients of its own.
    const auto groups = head_groups(), sharing = groups == 0 ? 0 : batch_ * heads_ / groups;
    if (are_divided_evenly(groups)) {
      backward_by_groups(groups, sharing, scratch);
    } else {
      backward_by_rows(groups, sharing, scratch);
    }
    SparseGradients gradients{result_of(grad_q_, a.q), result_of(grad_k_, a.k), result_of(grad_v_, a.v), {}};
    if (a.sinks) {
      // A sink of −∞ has weight 0, also in a row without keys, whose log_sum_exp_ is −∞ as well.
      const auto sinks = a.sinks->view({1, -1, 1});
      const auto weights = (sinks - log_sum_exp_).exp_().masked_fill_(sinks.isneginf(), 0);
      gradients.sinks = weights.mul(delta_).sum(at::IntArrayRef{0, 2}).neg_();
    }
    return gradients;
  }

 private:
  static int64_t threads() { return at::get_num_threads(); }
  // The number of groups of heads that share no head of q, k or v, over the batch.
  int64_t head_groups() const { return batch_ * std::gcd(std::gcd(q_.size(1), k_.size(1)), v_.size(1)); }
  // Whether all threads have about the same work if `pieces` equal pieces are distributed over them.
  static bool are_divided_evenly(int64_t pieces) {
    return pieces >= threads() && (pieces % threads() == 0 || pieces >= 4 * threads());
  }

  // A tensor of zeros to which the kernels add gradients of x: in the accumulator dtype, with padded rows.
  Tensor accumulator_like(const Tensor& x) const {
    return at::zeros({x.size(0), x.size(1), x.size(2), padded(x.size(3))}, numbers_);
  }
  static Tensor result_of(const Tensor& accumulator, const Tensor& x) {
    return accumulator.narrow(3, 0, x.size(3)).to(x.scalar_type()).contiguous();
  }

  void backward_by_groups(int64_t groups, int64_t sharing, const ThreadScratch& scratch) {
    struct Group {
      std::vector<SparseTask> tasks;
      int64_t pairs = 0;
    };
    std::vector<Group> all(static_cast<size_t>(groups));
    for (int64_t index = 0; index < groups; ++index)
      for (size_t stage = 0; stage < stages_; ++stage)
        for (const auto& task : tasks_of(stage, index * sharing, (index + 1) * sharing, 1)) {
          auto& group = all[size_t(index)];
          group.tasks.push_back(task), group.pairs += task.pairs;
        }
    share(all, threads(), [&](const Group& group, int64_t) {
      for (const auto& task : group.tasks) run_backward(head(task.head), task, scratch.for_this_thread());
    });
  }

  void backward_by_rows(int64_t groups, int64_t sharing, const ThreadScratch& scratch) {
    // Gradients of the keys and values of one group for each thread but the first, which adds to the results.
    if (groups == 0) return;
    const auto all_k = grad_k_.flatten(0, 1).unflatten(0, {groups, -1}), all_v = grad_v_.flatten(0, 1).unflatten(0, {groups, -1});
    std::vector<Tensor> more_k, more_v;
    for (int64_t thread = 1; thread < threads(); ++thread)
      more_k.push_back(at::empty_like(all_k[0])), more_v.push_back(at::empty_like(all_v[0]));
    for (int64_t group = 0; group < groups; ++group) {
      const auto grad_k = all_k[group], grad_v = all_v[group];
      for (const auto* all : {&more_k, &more_v})
        for (const auto& more : *all) more.zero_();
      // The rows of one stage and head have different gradients of q. Those of the next stage or head may have the same, so they
      // are processed only after all threads are done.
      for (auto index = group * sharing; index < (group + 1) * sharing; ++index)
        for (size_t stage = 0; stage < stages_; ++stage)
          share(tasks_of(stage, index, index + 1, threads()), threads(), [&](const SparseTask& task, int64_t thread) {
            auto params = head(task.head);
            if (thread > 0) {
              params.grad_k = moved(params.grad_k, grad_k, more_k[size_t(thread) - 1]);
              params.grad_v = moved(params.grad_v, grad_v, more_v[size_t(thread) - 1]);
            }
            run_backward(params, task, scratch.for_this_thread());
          });
      for (const auto& more : more_k) grad_k.add_(more);
      for (const auto& more : more_v) grad_v.add_(more);
    }
  }
  // The address in `to` that corresponds to the address p in `from`, a tensor of the same layout.
  static void* moved(void* p, const Tensor& from, const Tensor& to) {
    return static_cast<char*>(to.data_ptr()) + (static_cast<char*>(p) - static_cast<char*>(from.data_ptr()));
  }

  template <class Work>
  static void for_each_part(const SparseTask& task, const Work& work) {
    if (task.parts == 1) return work(*task.part, task.begin, task.end);
    for (int64_t i = 0; i < task.parts; ++i) work(task.part[i], int64_t{0}, task.part[i].rows);
  }
  void run_backward(const SparseHeadParams& params, const SparseTask& task, void* scratch) const {
    for_each_part(
        task, [&](const VisiblePart& part, int64_t begin, int64_t end) { kernels_.backward(params, part, begin, end, scratch); });
  }

  // Adds the tasks of the blocks that are chosen for the queries of a head.
  void add_chosen(int64_t index, std::vector<SparseTask>& tasks) const {
    const auto of_choice = index / heads_ * chosen_heads_ + index % heads_ / (heads_ / chosen_heads_);
    for (const auto& group : chosen_[size_t(of_choice)].groups) {
      int64_t pairs = 0;
      for (const auto& part : group) pairs += pairs_of(part, 0, part.rows, kernels_.tile);
      if (group.empty()) continue;
      tasks.push_back({index, group.data(), 0, group.front().rows, pairs, int64_t(group.size())});
    }
  }

  // The tasks of a stage for the heads begin … end − 1, divided finely enough for `thread_count` threads.
  std::vector<SparseTask> tasks_of(size_t stage, int64_t begin, int64_t end, int64_t thread_count) const {
    const auto tile = kernels_.tile;
    constexpr int64_t kTasksOfThread = 16;
    const auto wanted =
        thread_count == 1 ? 1 : (thread_count * kTasksOfThread + end - begin - 1) / std::max<int64_t>(1, end - begin);
    std::vector<SparseTask> tasks;
    for (auto index = begin; index < end; ++index) {
      if (chosen_heads_ > 0 && stage == 1) {
        add_chosen(index, tasks);
        continue;
      }
      const auto& stages = parts_[parts_.size() == 1 ? 0 : size_t(index / heads_)];
      if (stage >= stages.size()) continue;
      for (const auto& part : stages[stage]) {
        const auto rows = std::max(tile, (part.rows / wanted + tile - 1) / tile * tile);
        for (int64_t row = 0; row < part.rows; row += rows) {
          const auto last = std::min(part.rows, row + rows);
          tasks.push_back({index, &part, row, last, pairs_of(part, row, last, tile)});
        }
      }
    }
    return tasks;
  }

  // Calls work(task, thread) for all tasks. Each thread gets consecutive tasks with about the same number of pairs, so that the
  // assignment, and with it the order of sums, depends only on the number of threads.
  template <class Task, class Work>
  static void share(const std::vector<Task>& tasks, int64_t thread_count, const Work& work) {
    std::vector<int64_t> before{0};
    for (const auto& task : tasks) before.push_back(before.back() + task.pairs);
    // The first task of a thread: the one whose middle lies in the thread's share of the pairs.
    const auto first_task = [&](int64_t thread) {
      const auto share = double(before.back()) * double(thread) / double(thread_count);
      size_t task = 0;
      while (task < tasks.size() && double(before[task] + before[task + 1]) / 2 < share) ++task;
      return thread == thread_count ? tasks.size() : task;
    };
    const auto run = [&](int64_t begin, int64_t end) {
      for (auto thread = begin; thread < end; ++thread)
        for (auto task = first_task(thread), last = first_task(thread + 1); task < last; ++task) work(tasks[task], thread);
    };
    if (thread_count == 1) run(0, 1);
    else at::parallel_for(0, thread_count, 1, run);
  }

  // The parameters of a head of the output.
  SparseHeadParams head(int64_t index) const {
    auto p = common_;
    const auto shared = [&](const Tensor& x) { return index / heads_ * x.size(1) + index % heads_ / (heads_ / x.size(1)); };
    const auto row = [&](const Tensor& x) -> void* {
      return x.defined() ? static_cast<char*>(x.data_ptr()) + int64_t(x.element_size()) * index * length_ : nullptr;
    };
    p.q = rows_of_head(q_, shared(q_));
    p.k = rows_of_head(k_, shared(k_));
    p.v = rows_of_head(v_, shared(v_));
    p.output = rows_of_head(output_, index);
    p.grad_output = rows_of_head(grad_output_, index);
    if (sinks_.defined()) p.sink = sinks_.const_data_ptr<double>()[index % heads_];
    p.log_sum_exp = row(log_sum_exp_);
    p.grad_log_sum_exp = row(grad_log_sum_exp_);
    p.delta = row(delta_);
    p.partial_output = rows_of_head(partial_output_, index).data;
    if (grad_q_.defined()) {
      p.grad_q = rows_of_head(grad_q_, shared(q_)).data;
      p.grad_q_stride = grad_q_.stride(2);
      p.grad_k = rows_of_head(grad_k_, shared(k_)).data;
      p.grad_k_stride = grad_k_.stride(2);
      p.grad_v = rows_of_head(grad_v_, shared(v_)).data;
      p.grad_v_stride = grad_v_.stride(2);
    }
    return p;
  }

  const SparseKernels& kernels_;
  std::vector<std::vector<VisibleParts>> parts_;  // of each batch entry, or of all
  // With chosen blocks, the parts of the second stage for each batch entry and head of the choice.
  std::vector<ChosenParts> chosen_;
  int64_t chosen_heads_ = 0;
  size_t stages_ = 0;
  int64_t batch_, heads_, length_;
  Tensor q_, k_, v_, sinks_;
  at::TensorOptions numbers_;
  Tensor output_, log_sum_exp_, partial_output_, grad_output_, grad_log_sum_exp_, delta_, grad_q_, grad_k_, grad_v_;
  SparseHeadParams common_{};
};

class CpuSparse final : public SparseImplementation {
 public:
  explicit CpuSparse(const SparseKernels& kernels) : kernels_(kernels) {}

  std::string name() const override { return kernels_.name; }
  SparseResults forward(const SparseArguments& a) const override { return SparsePass(kernels_, a).forward(a); }
  SparseGradients backward(const SparseArguments& a, const SparseResults& results, const Tensor& grad_output,
                           const Tensor& grad_log_sum_exp) const override {
    return SparsePass(kernels_, a).backward(a, results, grad_output, grad_log_sum_exp);
  }

  double working_bytes(const Problem& p, bool joins_parts, bool backward) const override {
    const auto number = double(c10::elementSize(accumulator_dtype(p.dtype)));
    const bool rounds = p.element_bytes() != number;
    if (!backward) return joins_parts && rounds ? p.output_bytes() / p.element_bytes() * number : 0;
    const double rows = double(p.batch) * double(p.output_head_count()) * double(p.query_len) * number;
    const auto accumulators = [&](double bytes, int64_t columns) {
      return bytes / p.element_bytes() * number * double(padded(columns)) / double(columns);
    };
    const bool needs_copies = rounds || p.head_dim % kPadding != 0 || p.value_dim % kPadding != 0;
    return rows + p.output_bytes() + accumulators(p.query_bytes() + p.key_bytes(), p.head_dim) +
           accumulators(p.value_bytes(), p.value_dim) + (needs_copies ? p.input_bytes() : 0);
  }

 private:
  const SparseKernels& kernels_;
};

const bool sparse_registered =
    (sparse_implementations().register_cpu(implementations_of<SparseImplementation, CpuSparse>(sparse_family())), true);

}  // namespace
}  // namespace attn::cpu
