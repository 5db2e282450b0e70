#include "attn/linear/implementation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attn/linear/feature_map.h"
#include "attn/cpu/call.h"
#include "attn/cpu/instruction_set.h"

namespace attn::kernels {
namespace {

using at::Tensor;

std::optional<LinearFeatures> features_of(const std::string& map) {
  if (map == "elu") return LinearFeatures::elu;
  if (map == "elu0.1") return LinearFeatures::elu01;
  if (map == "relu") return LinearFeatures::relu;
  if (map == "taylor") return LinearFeatures::taylor;
  if (map == "polynomial-2") return LinearFeatures::polynomial2;
  if (map == "favor") return LinearFeatures::favor;
  return std::nullopt;
}

constexpr KernelFamily<LinearKernels> kFamily{"linear_attention", linear_kernels_portable, linear_kernels_avx2,
                                              linear_kernels_avx512};

// The tensors of one call with the elements of each row side by side, and where each (batch entry, head) lies in them.
class Call {
 public:
  Call(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& key_lengths, const LinearMap& map,
       double epsilon)
      : q_(with_dense_rows(q)), k_(with_dense_rows(k)), v_(with_dense_rows(v)) {
    common_.features = *features_of(map.name);
    common_.head_dim = q.size(3);
    common_.feature_count = make_feature_map(map.name, map.projection)->count(common_.head_dim);
    if (map.projection) set_projection(*map.projection);
    common_.value_dim = v.size(3);
    common_.epsilon = float(epsilon);
    if (key_lengths) key_lengths_ = key_lengths->clamp(0, k.size(2)).contiguous();
  }

  int64_t heads() const { return q_.size(0) * q_.size(1); }
  int64_t query_len() const { return q_.size(2); }
  int64_t key_len() const { return k_.size(2); }
  int64_t features() const { return padded(common_.feature_count); }
  int64_t values() const { return padded(common_.value_dim); }
  bool scales() const { return has_scales(common_.features); }
  const LinearHead& common() const { return common_; }
  at::TensorOptions sums() const { return q_.options().dtype(q_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat); }

  // Contiguous; what is undefined stays out.
  void set_results(const Tensor& output, const Tensor& normalizer) { output_ = output, normalizer_ = normalizer; }
  void set_gradients(const Tensor& gradient, const Tensor& normalizer_gradient, const Tensor& of_q, const Tensor& of_k,
                     const Tensor& of_v) {
    gradient_ = with_dense_rows(gradient), normalizer_gradient_ = normalizer_gradient, of_q_ = of_q, of_k_ = of_k, of_v_ = of_v;
  }

  LinearHead head(int64_t index) const {
    const auto rows = [&](const Tensor& x) { return rows_of_head(x, index); };
    auto head = common_;
    head.q = rows(q_), head.k = rows(k_), head.v = rows(v_), head.output = rows(output_), head.gradient = rows(gradient_);
    head.q_gradient = rows(of_q_), head.k_gradient = rows(of_k_), head.v_gradient = rows(of_v_);
    head.normalizer = rows(normalizer_).data, head.normalizer_gradient = rows(normalizer_gradient_).data;
    head.visible_keys = key_lengths_.defined() ? key_lengths_.const_data_ptr<int64_t>()[index / q_.size(1)] : key_len();
    return head;
  }

 private:
  void set_projection(const Tensor& directions) {
    const auto scaled = (directions / std::pow(double(common_.head_dim), 0.25)).to(sums());
    const auto padded_copy = [&](const Tensor& x) {
      auto copy = at::zeros({x.size(0), padded(x.size(1))}, sums());
      copy.narrow(1, 0, x.size(1)).copy_(x);
      return copy;
    };
    projection_ = padded_copy(scaled), projection_transposed_ = padded_copy(scaled.t());
    common_.projection = projection_.const_data_ptr(), common_.projection_transposed = projection_transposed_.const_data_ptr();
  }

  LinearHead common_{};
  Tensor projection_, projection_transposed_;
  Tensor q_, k_, v_, key_lengths_, output_, normalizer_, gradient_, normalizer_gradient_, of_q_, of_k_, of_v_;
};

// Positions are shared out in stretches of whole chunks.
constexpr int64_t kChunk = 16;

struct Stretches {
  int64_t length, count, size;

  Stretches(int64_t positions, int64_t wanted)
      : length(positions),
        count(std::max<int64_t>(1, wanted)),
        size(std::max(kChunk, ((positions + count - 1) / count + kChunk - 1) / kChunk * kChunk)) {
    count = std::max<int64_t>(1, (positions + size - 1) / size);
  }
  int64_t begin(int64_t i) const { return std::min(length, i * size); }
  int64_t end(int64_t i) const { return std::min(length, (i + 1) * size); }
};

constexpr int64_t kLeastStretch = 256;  // shorter ones cost more to start than they save

// How many stretches a head's positions are scanned in. Each but the first needs the sum of what lies before it, which costs
// this share of a scan over the same positions.
constexpr double kSumOverScan = 0.42;

int64_t scanned_stretches(int64_t heads, int64_t positions, int64_t threads) {
  int64_t best = 1;
  double least = 0;
  for (int64_t count = 1; count <= std::max<int64_t>(1, std::min(threads, positions / kLeastStretch)); ++count) {
    const int64_t turns = (heads * count + threads - 1) / threads;
    const double rounds = double(turns) / double(count);
    const double sums = kSumOverScan * double(heads * (count - 1)) / double(threads * count);
    if (count == 1 || rounds + sums < 0.98 * least) best = count, least = rounds + sums;
  }
  return best;
}

// Stretches of work that need nothing from each other: all threads busy, as equally as may be.
int64_t free_stretches(int64_t heads, int64_t positions, int64_t threads) {
  const auto most = std::max<int64_t>(1, positions / kLeastStretch);
  return std::min(most, threads / std::gcd(std::max<int64_t>(1, heads), threads));
}

class Runner {
 public:
  Runner(const LinearKernels& kernels, const Call& call)
      : call_(call),
        threads_(at::get_num_threads()),
        number_bytes_(call.sums().dtype().itemsize()),
        scratch_(kernels.scratch_size(call.common()), call.sums()) {
    state_size_ = state_size(call.common());
  }

  using Work = std::function<void(const LinearHead& head, int64_t begin, int64_t end, void* state, void* vector, void* scratch)>;

  // work(head, stretch, its state) for every head and stretch; states [heads, stretches, state size] or [heads, 1, …].
  void run(const Stretches& stretches, const Tensor& states, const Work& work) const {
    if (call_.heads() == 0) return;
    at::parallel_for(0, call_.heads() * stretches.count, 1, [&](int64_t first, int64_t last) {
      for (int64_t task = first; task < last; ++task) {
        const auto head = task / stretches.count, stretch = task % stretches.count;
        auto* state = static_cast<char*>(states.data_ptr()) +
                      number_bytes_ * (head * states.stride(0) + (states.size(1) > 1 ? stretch * states.stride(1) : 0));
        work(call_.head(head), stretches.begin(stretch), stretches.end(stretch), state, vector_of(state),
             scratch_.of_this_thread());
      }
    });
  }

  // The sum over all stretches: [heads, 1, state size].
  Tensor sum(int64_t positions, const Work& add) const {
    const Stretches stretches(positions, free_stretches(call_.heads(), positions, threads_));
    const auto parts = zeros(stretches.count);
    run(stretches, parts, add);
    return stretches.count == 1 ? parts : total(parts);
  }

  // The state that each stretch begins with, from the stretches before it, or `backwards` from those after.
  Tensor starts(const Stretches& stretches, const Work& add, bool backwards) const {
    const auto states = zeros(stretches.count);
    if (stretches.count == 1) return states;
    // All but the outermost stretch, each in as many pieces as keep the threads equally busy.
    const auto others = stretches.count - 1, offset = int64_t{backwards};
    const auto pieces = threads_ / std::gcd(call_.heads() * others, threads_);
    const Stretches in_one(stretches.size, pieces);
    const auto parts = zeros(others * in_one.count);
    if (call_.heads() > 0) {
      at::parallel_for(0, call_.heads() * others * in_one.count, 1, [&](int64_t first, int64_t last) {
        for (int64_t task = first; task < last; ++task) {
          const auto head = task / (others * in_one.count), part = task % (others * in_one.count);
          const auto stretch = part / in_one.count + offset, piece = part % in_one.count;
          auto* state = static_cast<char*>(parts.data_ptr()) + number_bytes_ * (head * parts.stride(0) + part * parts.stride(1));
          const auto begin = stretches.begin(stretch), end = stretches.end(stretch);
          add(call_.head(head), std::min(end, begin + in_one.begin(piece)), std::min(end, begin + in_one.end(piece)), state,
              vector_of(state), scratch_.of_this_thread());
        }
      });
    }
    const auto sums =
        total(parts.view({call_.heads() * others, in_one.count, state_size_})).view({call_.heads(), others, state_size_});
    const auto state = [&](int64_t i) { return states.narrow(1, i, 1); };
    for (int64_t i = 0; i < others; ++i) {
      if (backwards) state(others - 1 - i).copy_(total(at::cat({state(others - i), sums.narrow(1, others - 1 - i, 1)}, 1)));
      else state(i + 1).copy_(total(at::cat({state(i), sums.narrow(1, i, 1)}, 1)));
    }
    return states;
  }

  // Of states [·, count, state size]: [·, 1, state size].
  Tensor total(const Tensor& states) const {
    if (!call_.scales()) return states.sum(1, /*keepdim=*/true);
    const auto scales = states.narrow(2, scale_at(), 1);
    const auto largest = scales.amax(1, /*keepdim=*/true);
    auto sum = (states * (scales - largest).exp()).sum(1, /*keepdim=*/true);
    sum.narrow(2, scale_at(), 1).copy_(largest);
    return sum;
  }

  int64_t threads() const { return threads_; }
  // Where Z or Y lies behind a matrix.
  void* vector_of(void* state) const { return static_cast<char*>(state) + number_bytes_ * call_.features() * call_.values(); }
  int64_t scale_at() const { return call_.features() * (call_.values() + 1); }

 private:
  Tensor zeros(int64_t count) const {
    auto states = at::zeros({call_.heads(), count, state_size_}, call_.sums());
    if (call_.scales()) states.narrow(2, scale_at(), 1).fill_(kNoScale);
    return states;
  }

  const Call& call_;
  int64_t threads_;
  int64_t number_bytes_, state_size_;
  ThreadScratch scratch_;
};

// The same numbers for the same number of threads.
std::tuple<Tensor, Tensor> linear_forward(const LinearKernels& kernels, const Tensor& q, const Tensor& k, const Tensor& v,
                                          bool causal, const std::optional<Tensor>& key_lengths, const LinearMap& map,
                                          double epsilon) {
  Call call(q, k, v, key_lengths, map, epsilon);
  const auto output = at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  const auto normalizer = at::empty({q.size(0), q.size(1), q.size(2), call.scales() ? 2 : 1}, call.sums());
  call.set_results(output, normalizer);
  const Runner runner(kernels, call);
  const Runner::Work add_keys = kernels.add_keys;
  if (causal) {
    const Stretches stretches(call.query_len(), scanned_stretches(call.heads(), call.query_len(), runner.threads()));
    runner.run(stretches, runner.starts(stretches, add_keys, /*backwards=*/false),
               [&](const LinearHead& head, int64_t begin, int64_t end, void* s, void* z, void* scratch) {
                 kernels.forward(head, begin, end, s, z, scratch);
               });
  } else {
    const auto state = runner.sum(call.key_len(), add_keys);
    const Stretches stretches(call.query_len(), free_stretches(call.heads(), call.query_len(), runner.threads()));
    runner.run(stretches, state, [&](const LinearHead& head, int64_t begin, int64_t end, void* s, void* z, void* scratch) {
      kernels.read(head, begin, end, s, z, scratch);
    });
  }
  return {output, normalizer};
}

std::tuple<Tensor, Tensor, Tensor> linear_backward(const LinearKernels& kernels, const Tensor& gradient, const Tensor& q,
                                                   const Tensor& k, const Tensor& v, const Tensor& normalizer, bool causal,
                                                   const std::optional<Tensor>& key_lengths, const LinearMap& map) {
  Call call(q, k, v, key_lengths, map, 0);
  const auto like = [](const Tensor& x) { return at::empty(x.sizes(), x.options()); };
  const auto of_q = like(q), of_k = like(k), of_v = like(v);
  const auto kept = normalizer.contiguous();
  call.set_results({}, kept);
  call.set_gradients(gradient, at::empty({q.size(0), q.size(1), q.size(2), 1}, kept.options()), of_q, of_k, of_v);
  const Runner runner(kernels, call);
  const Runner::Work add_keys = kernels.add_keys_transposed;
  const Runner::Work add_queries = kernels.add_queries;
  const auto scans = scanned_stretches(call.heads(), call.query_len(), runner.threads());
  const auto stretches_of = [&](int64_t length) {
    return Stretches(length, causal ? scans : free_stretches(call.heads(), length, runner.threads()));
  };

  const auto queries = stretches_of(call.query_len());
  const auto keys_seen = causal ? runner.starts(queries, add_keys, /*backwards=*/false) : runner.sum(call.key_len(), add_keys);
  runner.run(queries, keys_seen, [&](const LinearHead& head, int64_t begin, int64_t end, void* t, void* z, void* scratch) {
    kernels.backward_queries(head, begin, end, causal, t, z, scratch);
  });

  const auto keys = stretches_of(call.key_len());
  const auto queries_seen =
      causal ? runner.starts(keys, add_queries, /*backwards=*/true) : runner.sum(call.query_len(), add_queries);
  runner.run(keys, queries_seen, [&](const LinearHead& head, int64_t begin, int64_t end, void* r, void* y, void* scratch) {
    kernels.backward_keys(head, begin, end, causal, r, y, scratch);
  });
  return {of_q, of_k, of_v};
}

void linear_add(const LinearKernels& kernels, const Tensor& k, const Tensor& v, const Tensor& s, const Tensor& z,
                const LinearMap& map) {
  const Call call(k, k, v, {}, map, 0);
  const Runner runner(kernels, call);
  const auto features = call.common().feature_count, values = call.common().value_dim;
  // As the kernels have it; what lies between and behind is zeros.
  const auto matrix_of = [&](const Tensor& state) {
    return state.narrow(2, 0, call.features() * call.values())
        .view({call.heads(), call.features(), call.values()})
        .narrow(1, 0, features)
        .narrow(2, 0, values);
  };
  const auto vector_of = [&](const Tensor& state) {
    return state.narrow(2, call.features() * call.values(), features).squeeze(1);
  };
  auto added = runner.sum(call.key_len(), kernels.add_keys);
  auto before = at::zeros_like(added);
  matrix_of(before).copy_(s.flatten(0, 1)), vector_of(before).copy_(z.flatten(0, 1).narrow(1, 0, features));
  const auto scale_of = [&](const Tensor& state) { return state.narrow(2, runner.scale_at(), 1); };
  if (call.scales()) scale_of(before).copy_(z.flatten(0, 1).narrow(1, features, 1).unsqueeze(1));
  const auto sum = runner.total(at::cat({before, added}, 1));
  s.flatten(0, 1).copy_(matrix_of(sum)), z.flatten(0, 1).narrow(1, 0, features).copy_(vector_of(sum));
  if (call.scales()) z.flatten(0, 1).narrow(1, features, 1).unsqueeze(1).copy_(scale_of(sum));
}

Tensor linear_step(const LinearKernels& kernels, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& s,
                   const Tensor& z, const LinearMap& map, double epsilon) {
  TORCH_CHECK_VALUE(!c10::GradMode::is_enabled() || !(q.requires_grad() || k.requires_grad() || v.requires_grad()),
                    "linear attention: a step of the kernels records no gradients; those with kernel 'composed' do");
  constexpr int64_t kBytesWorthThreads = 1 << 20;  // of states; smaller ones are done before the threads have begun
  Call call(q, k, v, {}, map, epsilon);
  auto output = at::empty({q.size(0), q.size(1), 1, v.size(3)}, q.options());
  call.set_results(output, {});
  const auto threads = int64_t(s.nbytes()) < kBytesWorthThreads ? int64_t{1} : int64_t{at::get_num_threads()};
  const auto scratch = at::empty({threads, kernels.scratch_size(call.common())}, call.sums());
  const auto work = [&](int64_t begin, int64_t end, int64_t thread) {
    for (auto head = begin; head < end; ++head) {
      const auto at = [&](const Tensor& x) {
        return static_cast<char*>(x.data_ptr()) + int64_t(x.nbytes()) / call.heads() * head;
      };
      kernels.step(call.head(head), at(s), at(z),
                   static_cast<char*>(scratch.data_ptr()) + int64_t(scratch.nbytes()) / threads * thread);
    }
  };
  if (call.heads() == 0) return output;
  if (threads == 1) work(0, call.heads(), 0);
  else at::parallel_for(0, call.heads(), 1, [&](int64_t begin, int64_t end) { work(begin, end, at::get_thread_num()); });
  return output;
}

class CpuLinear final : public LinearImplementation {
 public:
  explicit CpuLinear(const LinearKernels& kernels) : kernels_(kernels) {}

  std::string name() const override { return kernels_.name; }
  std::tuple<Tensor, Tensor> forward(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                     const std::optional<Tensor>& key_lengths, const LinearMap& map,
                                     double epsilon) const override {
    return linear_forward(kernels_, q, k, v, causal, key_lengths, map, epsilon);
  }
  std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v,
                                              const Tensor& normalizer, bool causal, const std::optional<Tensor>& key_lengths,
                                              const LinearMap& map) const override {
    return linear_backward(kernels_, gradient, q, k, v, normalizer, causal, key_lengths, map);
  }
  void add(const Tensor& k, const Tensor& v, const Tensor& s, const Tensor& z, const LinearMap& map) const override {
    linear_add(kernels_, k, v, s, z, map);
  }
  Tensor step(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& s, const Tensor& z, const LinearMap& map,
              double epsilon) const override {
    return linear_step(kernels_, q, k, v, s, z, map, epsilon);
  }

 private:
  const LinearKernels& kernels_;
};

FindLinear cuda_linear = nullptr;

}  // namespace

const LinearKernels* find_linear_kernels(const std::string& wanted, const std::string& feature_map, at::ScalarType dtype,
                                         c10::DeviceType device) {
  return kFamily.find(wanted, dtype, device, "feature map '" + feature_map + "'", features_of(feature_map).has_value());
}

const LinearImplementation* find_linear(const LinearRequest& request) {
  if (request.wanted == "composed") return nullptr;
  if (request.device != cuda_device())
    return implementation_of<CpuLinear>(kFamily,
                                        find_linear_kernels(request.wanted, request.feature_map, request.dtype, request.device));
  if (cuda_linear) return cuda_linear(request);
  TORCH_CHECK_VALUE(request.wanted == "auto", "linear_attention: kernel '", request.wanted,
                    "' on CUDA needs libattn-cuda.so, which is not loaded");
  return nullptr;
}

void set_cuda_linear(FindLinear find) { cuda_linear = find; }

}  // namespace attn::kernels
