// Compares the kernels for ARM with the portable kernels, which the contract tests compare with float64. A cross compiler builds
// this program without LibTorch, and an emulator runs it. It prints what differs, and then ends with exit code 1.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "attn/cpu/cached_attention.h"
#include "attn/cpu/simd.h"
#include "attn/linear/cpu/kernels.h"
#include "attn/lsh/cpu/kernels.h"
#include "attn/recurrent/cpu/kernels.h"

namespace {

using attn::ElementType;
using attn::FeatureMapKind;
using namespace attn::cpu;

int failures = 0, comparisons = 0;

template <class E>
float number(E x) {
  if constexpr (std::is_same_v<E, float>) return x;
  const uint32_t bits = uint32_t(reinterpret_cast<const uint16_t&>(x)) << 16;
  float result = 0;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

template <class E>
E element(float x) {
  if constexpr (std::is_same_v<E, float>) return x;
  E result;
  Neon::store(&result, Neon::all(x), Neon::first(1));
  return result;
}

// Expects that the largest difference, divided by the largest expected number, is at most the tolerance.
template <class E>
void expect_close(const std::vector<E>& result, const std::vector<E>& expected, double tolerance, const std::string& what) {
  double difference = 0, scale = 1e-30;
  for (size_t i = 0; i < result.size(); ++i) {
    const double a = number(result[i]), b = number(expected[i]);
    if (std::isnan(a) != std::isnan(b)) difference = INFINITY;
    if (std::isnan(a) || std::isnan(b)) continue;
    if (a != b) difference = std::max(difference, std::abs(a - b));  // equal infinities have no difference
    if (std::isfinite(b)) scale = std::max(scale, std::abs(b));
  }
  ++comparisons;
  if (difference / scale <= tolerance) return;
  ++failures;
  std::printf("%s: relative difference %g, accepted %g\n", what.c_str(), difference / scale, tolerance);
}

std::mt19937 generator(1);  // NOLINT(cert-msc51-cpp): every run draws the same numbers

template <class E>
std::vector<E> normal(int64_t count) {
  std::normal_distribution<float> draw;
  std::vector<E> numbers(static_cast<size_t>(count));
  for (auto& x : numbers) x = element<E>(draw(generator));
  return numbers;
}

template <class E>
Rows rows_of(std::vector<E>& numbers, int64_t dim) {
  return {numbers.data(), dim};
}

// ------------------------------------------------------------------ linear attention

template <class E>
struct LinearResults {
  std::vector<E> output, grad_q, grad_k, grad_v;
  std::vector<float> normalizer, step_output;
};

struct LinearCase {
  FeatureMapKind map;
  bool causal;
  int64_t queries, keys, visible, head_dim, features, value_dim;
};

template <class E>
LinearResults<E> run_linear(const LinearKernels& kernels, const LinearCase& c) {
  generator.seed(7);
  auto q = normal<E>(c.queries * c.head_dim), k = normal<E>(c.keys * c.head_dim), v = normal<E>(c.keys * c.value_dim),
       grad_output = normal<E>(c.queries * c.value_dim);
  std::vector<float> directions = normal<float>(c.features * padded(c.head_dim)),
                     transposed(size_t(c.head_dim * padded(c.features)));
  for (int64_t f = 0; f < c.features; ++f)
    for (int64_t d = 0; d < padded(c.head_dim); ++d) {
      auto& x = directions[size_t(f * padded(c.head_dim) + d)];
      if (d >= c.head_dim) x = 0;
      else transposed[size_t(d * padded(c.features) + f)] = x;
    }
  std::vector<float> shift(size_t(padded(c.value_dim)));
  for (int64_t m = 0; m < c.value_dim; ++m) shift[size_t(m)] = 0.1f * float(m % 5);

  LinearResults<E> r;
  r.output.resize(size_t(c.queries * c.value_dim)), r.grad_q.resize(q.size()), r.grad_k.resize(k.size());
  r.grad_v.resize(v.size()), r.normalizer.resize(size_t(c.queries) * size_t(normalizer_numbers(update_for(c.map))));
  std::vector<float> grad_normalizer(static_cast<size_t>(c.queries));

  LinearHeadParams p{};
  p.map = c.map;
  p.update = update_for(c.map);
  p.head_dim = c.head_dim;
  p.feature_count = c.features;
  p.value_dim = c.value_dim;
  p.visible_keys = c.visible;
  p.epsilon = 1e-6f;
  p.q = rows_of(q, c.head_dim);
  p.k = rows_of(k, c.head_dim);
  p.v = rows_of(v, c.value_dim);
  p.output = rows_of(r.output, c.value_dim);
  p.grad_output = rows_of(grad_output, c.value_dim);
  p.grad_q = rows_of(r.grad_q, c.head_dim);
  p.grad_k = rows_of(r.grad_k, c.head_dim);
  p.grad_v = rows_of(r.grad_v, c.value_dim);
  p.normalizer = r.normalizer.data();
  p.grad_normalizer = grad_normalizer.data();
  p.projection = directions.data();
  p.projection_transposed = transposed.data();

  std::vector<float> state(static_cast<size_t>(state_size(p))), scratch(static_cast<size_t>(kernels.scratch_size(p)));
  float* const z = state.data() + padded(c.features) * padded(c.value_dim);
  const auto clear = [&] {
    std::fill(state.begin(), state.end(), 0.0f);
    if (has_scales(p.update)) z[padded(c.features)] = float(attn::kNoScale);
  };
  clear();
  if (c.causal) {
    kernels.forward(p, 0, c.queries, state.data(), z, scratch.data());
  } else {
    kernels.add_keys(p, 0, c.keys, state.data(), z, scratch.data());
    kernels.read(p, 0, c.queries, state.data(), z, scratch.data());
  }
  p.value_shift = shift.data();
  clear();
  if (!c.causal) kernels.add_keys_transposed(p, 0, c.keys, state.data(), z, scratch.data());
  kernels.backward_queries(p, 0, c.queries, c.causal, state.data(), z, scratch.data());
  clear();
  if (!c.causal) kernels.add_queries(p, 0, c.queries, state.data(), z, scratch.data());
  kernels.backward_keys(p, 0, c.keys, c.causal, state.data(), z, scratch.data());

  // Ten decoding steps. Their states have no padding.
  p.value_shift = nullptr;
  p.normalizer = nullptr;
  std::vector<float> s(size_t(c.features * c.value_dim)), vector(size_t(c.features) + 1);
  if (has_scales(p.update)) vector[size_t(c.features)] = float(attn::kNoScale);
  std::vector<E> token(static_cast<size_t>(c.value_dim));
  for (int64_t t = 0; t < std::min<int64_t>(10, std::min(c.queries, c.keys)); ++t) {
    p.q = {q.data() + t * c.head_dim, c.head_dim};
    p.k = {k.data() + t * c.head_dim, c.head_dim};
    p.v = {v.data() + t * c.value_dim, c.value_dim};
    p.output = rows_of(token, c.value_dim);
    kernels.step(p, s.data(), vector.data(), scratch.data());
    for (const auto x : token) r.step_output.push_back(number(x));
  }
  return r;
}

template <class E>
void test_linear(ElementType type, double tolerance) {
  const std::pair<const char*, FeatureMapKind> maps[] = {{"elu", FeatureMapKind::elu},
                                                         {"elu01", FeatureMapKind::elu01},
                                                         {"relu", FeatureMapKind::relu},
                                                         {"taylor", FeatureMapKind::taylor},
                                                         {"polynomial2", FeatureMapKind::polynomial2},
                                                         {"favor", FeatureMapKind::favor}};
  for (const auto& [name, map] : maps) {
    for (const auto& [dim, value_dim] : {std::pair<int64_t, int64_t>{8, 8}, {17, 33}, {64, 64}}) {
      if (map == FeatureMapKind::polynomial2 && dim == 64) continue;  // slow under emulation
      for (const bool causal : {false, true}) {
        for (const int64_t hidden : {0, 5}) {
          const int64_t queries = 37, keys = causal ? 37 : 53;
          const int64_t features = map == FeatureMapKind::taylor        ? dim + 1
                                   : map == FeatureMapKind::polynomial2 ? 1 + dim + dim * (dim + 1) / 2
                                   : map == FeatureMapKind::favor       ? 24
                                                                        : dim;
          const LinearCase c{map, causal, queries, keys, keys - hidden, dim, features, value_dim};
          const auto what = std::string(name) + (causal ? " causal" : " full") + " dim " + std::to_string(dim) +
                            ", hidden keys " + std::to_string(hidden) +
                            (std::is_same_v<E, float> ? ", float32, " : ", bfloat16, ");
          const auto result = run_linear<E>(*linear_kernels_neon(type), c),
                     expected = run_linear<E>(*linear_kernels_portable(type), c);
          expect_close(result.output, expected.output, tolerance, what + "output");
          expect_close(result.normalizer, expected.normalizer, tolerance, what + "normalizer");
          expect_close(result.grad_q, expected.grad_q, tolerance, what + "gradient of q");
          expect_close(result.grad_k, expected.grad_k, tolerance, what + "gradient of k");
          expect_close(result.grad_v, expected.grad_v, tolerance, what + "gradient of v");
          expect_close(result.step_output, expected.step_output, tolerance, what + "decoding steps");
        }
      }
    }
  }
}

// ------------------------------------------------------------------ LSH attention

template <class E>
struct LshResults {
  std::vector<int32_t> buckets;
  std::vector<E> output, grad_qk, grad_v;
};

template <class E>
LshResults<E> run_lsh(const LshKernels& kernels, bool causal, bool trax, int64_t rounds, int64_t visible, int64_t dim,
                      int64_t value_dim) {
  constexpr int64_t kLength = 90, kLshChunk = 16, kColumns = 6;
  generator.seed(11);
  auto qk = normal<E>(kLength * dim), v = normal<E>(kLength * value_dim), grad_output = normal<E>(kLength * value_dim);
  const auto directions = normal<float>((rounds * kColumns + 3) * dim);
  const std::vector<double> exact(directions.begin(), directions.end());
  LshResults<E> r;
  r.buckets.resize(size_t(rounds * kLength)), r.output.resize(v.size()), r.grad_qk.resize(qk.size()), r.grad_v.resize(v.size());
  std::vector<int64_t> order(size_t(rounds * kLength));
  std::vector<double> log_sum_exp(order.size()), merged(size_t(2 * kLength));
  std::vector<float> partial(size_t(kLength * padded(value_dim))), shares(order.size(), 1.0f / float(rounds));

  LshHeadParams p{};
  p.length = kLength;
  p.dim = dim;
  p.value_dim = value_dim;
  p.rounds = rounds;
  p.chunk = kLshChunk;
  p.chunks = (kLength + kLshChunk - 1) / kLshChunk;
  p.visible_keys = visible;
  p.causal = causal;
  p.trax = trax;
  p.qk = rows_of(qk, dim);
  p.v = rows_of(v, value_dim);
  p.output = rows_of(r.output, value_dim);
  p.grad_output = rows_of(grad_output, value_dim);
  p.grad_qk = rows_of(r.grad_qk, dim);
  p.grad_v = rows_of(r.grad_v, value_dim);
  p.order = order.data();
  p.log_sum_exp = log_sum_exp.data();
  p.partial_output = partial.data();
  p.merged = merged.data();
  p.shares = shares.data();

  std::vector<float> scratch(static_cast<size_t>(kernels.scratch_size(p)));
  float norm = 0;
  for (size_t c = 0; c + size_t(dim) <= directions.size(); c += size_t(dim)) {
    float squares = 0;
    for (size_t d = 0; d < size_t(dim); ++d) squares += directions[c + d] * directions[c + d];
    norm = std::max(norm, std::sqrt(squares));
  }
  kernels.hash(p, 0, kLength, {exact.data(), directions.data(), kColumns, 0, norm}, r.buckets.data(), scratch.data());
  for (int64_t round = 0; round < rounds; ++round) {
    auto* begin = order.data() + round * kLength;
    std::iota(begin, begin + kLength, 0);
    std::stable_sort(begin, begin + visible, [&](int64_t a, int64_t b) {
      return r.buckets[size_t(round * kLength + a)] < r.buckets[size_t(round * kLength + b)];
    });
    kernels.forward(p, round, 0, p.chunks, scratch.data());
  }
  if (rounds > 1) kernels.store_partial_output(p, 0, kLength);
  std::vector<float> grad_query(size_t(kLength * padded(dim))), grad_key(grad_query.size()),
      grad_value(size_t(kLength * padded(value_dim)));
  const LshGradients gradients{grad_query.data(), grad_key.data(), grad_value.data()};
  kernels.backward(p, 0, rounds * p.chunks, gradients, scratch.data());
  kernels.store_gradients(p, 0, kLength, gradients);
  return r;
}

template <class E>
void test_lsh(ElementType type, double tolerance) {
  for (const bool causal : {false, true}) {
    for (const bool trax : {false, true}) {
      for (const int64_t rounds : {1, 3}) {
        for (const int64_t visible : {90, 71}) {
          for (const auto& [dim, value_dim] : {std::pair<int64_t, int64_t>{16, 16}, {19, 37}}) {
            const auto what = std::string("lsh") + (causal ? " causal" : " full") + (trax ? " trax" : "") + ", rounds " +
                              std::to_string(rounds) + ", visible " + std::to_string(visible) + ", dim " + std::to_string(dim) +
                              (std::is_same_v<E, float> ? ", float32, " : ", bfloat16, ");
            const auto run = [&](const LshKernels& kernels) {
              return run_lsh<E>(kernels, causal, trax, rounds, visible, dim, value_dim);
            };
            const auto result = run(*lsh_kernels_neon(type)), expected = run(*lsh_kernels_portable(type));
            ++comparisons;
            if (result.buckets != expected.buckets) ++failures, std::printf("%sbuckets differ\n", what.c_str());
            expect_close(result.output, expected.output, tolerance, what + "output");
            expect_close(result.grad_qk, expected.grad_qk, tolerance, what + "gradient of qk");
            expect_close(result.grad_v, expected.grad_v, tolerance, what + "gradient of v");
          }
        }
      }
    }
  }
}

// ------------------------------------------------------------------ recurrent attention

// The tensors of one head, and what the kernels of a table make of them.
template <class E>
struct RecurrentHead {
  int64_t length;
  RecurrentHeadParams params{};
  std::vector<E> q, k, v, grad_output, output, grad_q, grad_k, grad_v;
  std::vector<float> g, beta, grad_g, grad_beta, state, grad_state, step_state;

  RecurrentHead(int64_t positions, int64_t keys, int64_t values, bool delta, bool feature_gates) : length(positions) {
    params.key_dim = keys;
    params.value_dim = values;
    params.delta = params.normalizes = delta;
    params.scale = 0.25;
    params.feature_gates = feature_gates;
    q = normal<E>(length * keys);
    k = normal<E>(length * keys);
    v = normal<E>(length * values);
    grad_output = normal<E>(length * values);
    output.resize(v.size()), grad_q.resize(q.size()), grad_k.resize(k.size()), grad_v.resize(v.size());
    g = normal<float>(length * (feature_gates ? keys : 1));
    beta = normal<float>(length);
    for (size_t i = 0; i < g.size(); ++i) g[i] = i % 11 == 10 && i % 997 < 300 ? -INFINITY : -std::abs(g[i]) / 4;
    for (float& x : beta) x = std::min(1.f, std::abs(x));
    grad_g.resize(g.size()), grad_beta.resize(beta.size());
    step_state = normal<float>(keys * values);
    state.resize(size_t(state_size(params))), grad_state.resize(state.size());
    for (auto* x : {&state, &grad_state}) {
      const auto numbers = normal<float>(keys * values);
      for (int64_t d = 0; d < keys; ++d) std::copy_n(numbers.begin() + d * values, values, x->begin() + d * padded(values));
    }
  }

  void run(const RecurrentKernels& kernels) {
    auto& p = params;
    p.q = {q.data(), p.key_dim};
    p.k = {k.data(), p.key_dim};
    p.v = {v.data(), p.value_dim};
    p.output = {output.data(), p.value_dim};
    p.grad_output = {grad_output.data(), p.value_dim};
    p.grad_q = {grad_q.data(), p.key_dim};
    p.grad_k = {grad_k.data(), p.key_dim};
    p.grad_v = {grad_v.data(), p.value_dim};
    p.g = g.data();
    p.grad_g = grad_g.data();
    p.g_stride = p.grad_g_stride = p.feature_gates ? p.key_dim : 1;
    if (p.delta) {
      p.beta = beta.data();
      p.beta_stride = 1;
      p.grad_beta = grad_beta.data();
    }
    const auto numbers = [](int64_t count) { return std::vector<float>(size_t(count + kPadding)); };
    auto checkpoints = numbers((length / attn::kCheckpoint + 1) * state_size(p));
    auto forward = numbers(kernels.scratch_size(p, false)), backward = numbers(kernels.scratch_size(p, true));
    kernels.forward(p, 0, length, state.data(), checkpoints.data(), forward.data());
    kernels.backward(p, 0, length, checkpoints.data(), grad_state.data(), backward.data());
    auto first = p;
    std::vector<E> row(output.begin(), output.begin() + p.value_dim);
    first.output = {row.data(), p.value_dim};
    kernels.step(first, step_state.data(), forward.data());
  }
};

template <class E>
void test_recurrent(ElementType type, double tolerance) {
  for (const auto& [delta, feature_gates] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
    for (const int64_t length : {1, 15, 40, 300}) {
      for (const auto& [keys, values] : {std::pair<int64_t, int64_t>{5, 7}, {33, 17}, {64, 64}}) {
        RecurrentHead<E> found(length, keys, values, delta, feature_gates);
        auto expected = found;
        found.run(*recurrent_kernels_neon(type)), expected.run(*recurrent_kernels_portable(type));
        const auto what = "recurrent attention, rule " + std::string(delta ? "delta" : "add") +
                          (feature_gates ? ", decays of features" : "") + ", T = " + std::to_string(length) +
                          ", K = " + std::to_string(keys) + ": ";
        expect_close(found.output, expected.output, tolerance, what + "output");
        expect_close(found.grad_q, expected.grad_q, tolerance, what + "gradient of q");
        expect_close(found.grad_k, expected.grad_k, tolerance, what + "gradient of k");
        expect_close(found.grad_v, expected.grad_v, tolerance, what + "gradient of v");
        expect_close(found.grad_g, expected.grad_g, tolerance, what + "gradient of g");
        if (delta) expect_close(found.grad_beta, expected.grad_beta, tolerance, what + "gradient of beta");
        expect_close(found.state, expected.state, tolerance, what + "state");
        expect_close(found.grad_state, expected.grad_state, tolerance, what + "gradient of the state");
        expect_close(found.step_state, expected.step_state, tolerance, what + "state after a step");
      }
    }
  }
}

// ------------------------------------------------------------------ cached attention and exp

void test_cached_attention() {
  for (const int64_t length : {1, 4, 7, 65}) {
    for (const auto& [dim, value_dim] : {std::pair<int64_t, int64_t>{3, 5}, {32, 64}, {64, 17}}) {
      const auto q = normal<float>(dim), k = normal<float>(length * dim), v = normal<float>(length * value_dim);
      std::vector<float> output(static_cast<size_t>(value_dim)), expected(output.size()),
          scores(static_cast<size_t>(cached_attention_scratch(length)));
      const auto run = [&](const CachedAttentionKernels& kernels, std::vector<float>& to) {
        kernels.attend({q.data(), k.data(), v.data(), to.data(), scores.data(), length, dim, value_dim, 0.125f});
      };
      run(*cached_attention_neon(ElementType::float32), output);
      // The portable kernel, written out because its file needs LibTorch.
      double sum = 0;
      std::vector<double> exact(output.size());
      for (int64_t j = 0; j < length; ++j) {
        double score = 0;
        for (int64_t d = 0; d < dim; ++d) score += double(q[size_t(d)]) * double(k[size_t(j * dim + d)]);
        const double weight = std::exp(score * 0.125);
        sum += weight;
        for (int64_t m = 0; m < value_dim; ++m) exact[size_t(m)] += weight * double(v[size_t(j * value_dim + m)]);
      }
      for (size_t m = 0; m < exact.size(); ++m) expected[m] = float(exact[m] / sum);
      expect_close(output, expected, 1e-5, "cached attention to " + std::to_string(length) + " keys");
    }
  }
}

void test_exp() {
  double worst = 0;
  for (double x = -103; x < 88.7; x += 1.0 / 512) {
    float lanes[4];
    Neon::store(lanes, Neon::exp(Neon::all(float(x))));
    const double exact = std::exp(double(float(x)));
    const double unit = std::max(double(std::nextafter(float(exact), INFINITY)) - double(float(exact)), 1.5e-45);
    worst = std::max(worst, std::abs(double(lanes[0]) - exact) / unit);
  }
  ++comparisons;
  if (worst > 2) ++failures, std::printf("exp is wrong by %g units in the last place\n", worst);
}

}  // namespace

int main() {
  test_exp();
  test_cached_attention();
  test_linear<float>(ElementType::float32, 1e-4);
  test_linear<BFloat16>(ElementType::bfloat16, 2e-2);
  test_lsh<float>(ElementType::float32, 1e-4);
  test_lsh<BFloat16>(ElementType::bfloat16, 2e-2);
  test_recurrent<float>(ElementType::float32, 1e-4);
  test_recurrent<BFloat16>(ElementType::bfloat16, 2e-2);
  std::printf("%d comparisons, %d failed\n", comparisons, failures);
  return failures == 0 ? 0 : 1;
}
