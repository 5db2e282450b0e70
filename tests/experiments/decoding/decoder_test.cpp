// Tests of the decoders: each gives the outputs of the model's forward, a step of the fast ones allocates nothing, and mistakes
// are refused.
#include "experiments/decoding/decoder.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "attn/cpu/instruction_set.h"
#include "attn/registry.h"
#include "experiments/decoding/cpu/kernels.h"
#include "harness/worker/cpu/memory.h"
#include "tests/support/errors_of.h"

#ifndef __SANITIZE_ADDRESS__
// Counts the calls of operator new in the whole program. AddressSanitizer has operators of its own.
namespace {
std::atomic<int64_t> news = 0;
}
void* operator new(size_t size) {
  ++news;
  if (void* const memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace experiments {
namespace {

using attnbench::message_of;

// Sizes that are multiples of neither 16 nor 8, so that kernels meet parts of vectors and of tiles.
SequenceModelOptions small_model(const std::string& method) {
  return {.tokens = 11,
          .outputs = 7,
          .encoder = {.method = method, .layers = 2, .width = 44, .heads = 3, .head_dim = 12, .feed_forward = 53, .seed = 5}};
}

SequenceModel model_of(const SequenceModelOptions& options, at::ScalarType dtype = at::kFloat) {
  at::manual_seed(3);
  SequenceModel model(options);
  // LayerNorm's initial weights and biases are ones and zeros, with which it would not show whether they are used.
  const at::NoGradGuard no_grad;
  for (auto& parameter : model->named_parameters())
    if (parameter.key().find("norm") != std::string::npos) parameter.value().add_(at::randn(parameter.value().sizes()) * 0.1);
  model->to(dtype);
  model->eval();
  return model;
}

at::Tensor random_tokens(const SequenceModel& model, int64_t batch, int64_t length) {
  return at::randint(model->options().tokens, {batch, length}, at::kLong);
}

void expect_close(const at::Tensor& result, const at::Tensor& expected, const std::string& what, double tolerance = 1e-4) {
  ASSERT_EQ(result.sizes(), expected.sizes()) << what;
  const auto difference = (result.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
  EXPECT_LE(difference, tolerance * expected.abs().max().item<double>()) << what;
}

// The outputs of steps over all tokens [batch, length], or of those after the first `prefilled`, as [batch, length, outputs].
at::Tensor decoded(Decoder& decoder, const at::Tensor& tokens, int64_t prefilled = 0) {
  std::vector<at::Tensor> outputs;
  if (prefilled > 0) outputs.push_back(decoder.prefill(tokens.narrow(1, 0, prefilled)).clone());
  for (auto i = prefilled; i < tokens.size(1); ++i) outputs.push_back(decoder.step(tokens.select(1, i)).clone());
  return at::stack(outputs, 1);
}

std::vector<std::string> kernels() {
  std::vector<std::string> names = {"modules"};
  for (const auto set : attn::cpu::available_instruction_sets()) names.emplace_back(attn::cpu::name_of(set));
  return names;
}

// ---------------------------------------------------------------- outputs

TEST(Decoder, GivesTheOutputsOfTheModelInFloat64) {
  const at::NoGradGuard no_grad;
  for (const auto* method : {"linear", "stateful-softmax", "stateful-sdpa", "stateful-softmax-concat", "favor", "softmax"}) {
    const auto options = small_model(method);
    const auto model = model_of(options);
    const auto reference = model_of(options, at::kDouble);
    // Activations are stored by rows for the first three, and by columns for the others.
    for (const int64_t batch : {1, 3, 17, 16, 30, 64}) {
      const auto tokens = random_tokens(model, batch, 13);
      const auto expected = SequenceModel(reference)(tokens);
      for (const auto& kernel : kernels()) {
        SCOPED_TRACE(testing::Message() << method << " " << batch << " " << kernel);
        const auto decoder = make_decoder(model, {.batch = batch, .max_tokens = 13, .kernel = kernel});
        expect_close(decoded(*decoder, tokens), expected, "steps");
        EXPECT_EQ(decoder->position(), 13);
        decoder->reset();
        EXPECT_EQ(decoder->position(), 0);
        expect_close(decoded(*decoder, tokens, 9), expected.narrow(1, 8, 5), "steps after a reset and a prefill");
      }
    }
  }
}

TEST(Decoder, GivesTheOutputsOfModelsWithGates) {
  const at::NoGradGuard no_grad;
  for (const auto* method : {"gated-delta", "kda"}) {
    const auto model = model_of(small_model(method));
    const auto tokens = random_tokens(model, 3, 13);
    const auto expected = SequenceModel(model_of(small_model(method), at::kDouble))(tokens);
    const auto decoder = make_decoder(model, {.batch = 3, .max_tokens = 13});
    expect_close(decoded(*decoder, tokens), expected, method);
    EXPECT_EQ(decoder->implementation().rfind("modules + ", 0), 0U) << decoder->implementation();
    decoder->reset();
    expect_close(decoded(*decoder, tokens, 9), expected.narrow(1, 8, 5), method);
    const auto portable = [&] { make_decoder(model, {.batch = 3, .max_tokens = 13, .kernel = "portable"}); };
    EXPECT_CONTAINS(message_of<c10::ValueError>(portable), "'portable' does not compute the gates");
  }
}

TEST(Decoder, GivesTheOutputsOfTheModelsOfThePaper) {
  const at::NoGradGuard no_grad;
  for (const auto* method : {"linear", "stateful-softmax"}) {
    const auto options = image_model(2, method);
    const auto model = model_of(options);
    const auto reference = model_of(options, at::kDouble);
    for (const int64_t batch : {1, 7, 64}) {
      const auto tokens = random_tokens(model, batch, 20);
      const auto expected = SequenceModel(reference)(tokens);
      for (const auto& kernel : kernels()) {
        const auto decoder = make_decoder(model, {.batch = batch, .max_tokens = 20, .kernel = kernel});
        expect_close(decoded(*decoder, tokens), expected, kernel);
      }
    }
  }
}

TEST(Decoder, LshGivesTheLastRowOfTheForwardOverEachPrefix) {
  const at::NoGradGuard no_grad;
  auto model = model_of(small_model("lsh:chunk=4,rounds=2,profile=fast-transformers"));
  const auto decoder = make_decoder(model, {.batch = 3, .max_tokens = 13});
  const auto tokens = random_tokens(model, 3, 13);
  const auto outputs = decoded(*decoder, tokens);
  for (int64_t i = 0; i < 13; ++i)
    expect_close(outputs.select(1, i), model(tokens.narrow(1, 0, i + 1)).select(1, i), std::to_string(i), 1e-6);
}

TEST(Decoder, RunsFloat64ByModules) {
  const at::NoGradGuard no_grad;
  auto model = model_of(small_model("linear"), at::kDouble);
  const auto decoder = make_decoder(model, {.batch = 3, .max_tokens = 13});
  const auto tokens = random_tokens(model, 3, 13);
  const auto outputs = decoded(*decoder, tokens);
  EXPECT_EQ(outputs.scalar_type(), at::kDouble);
  expect_close(outputs, model(tokens), "float64", 1e-12);
}

TEST(Decoder, OutputsDoNotDependOnTheNumberOfThreads) {
  const auto model = model_of(small_model("linear"));
  const auto threads = at::get_num_threads();
  for (const int64_t batch : {3, 50}) {
    const auto tokens = random_tokens(model, batch, 5);
    std::vector<at::Tensor> outputs;
    for (const int count : {1, 2, 5}) {
      at::set_num_threads(count);
      const auto decoder = make_decoder(model, {.batch = batch, .max_tokens = 5});
      outputs.push_back(decoded(*decoder, tokens));
      // A decoder that was made for more threads than there are now.
      at::set_num_threads(1);
      decoder->reset();
      EXPECT_TRUE(at::equal(decoded(*decoder, tokens), outputs.back())) << count;
    }
    at::set_num_threads(threads);
    EXPECT_TRUE(at::equal(outputs[1], outputs[0])) << batch;
    EXPECT_TRUE(at::equal(outputs[2], outputs[0])) << batch;
  }
}

TEST(Decoder, RunsInsideAParallelRegion) {
  const auto model = model_of(small_model("linear"));
  const auto tokens = random_tokens(model, 1, 5);
  std::vector<at::Tensor> outputs(2);
  at::parallel_for(0, 2, 1, [&](int64_t begin, int64_t end) {
    for (auto i = begin; i < end; ++i) outputs[size_t(i)] = decoded(*make_decoder(model, {.batch = 1, .max_tokens = 5}), tokens);
  });
  EXPECT_TRUE(at::equal(outputs[0], decoded(*make_decoder(model, {.batch = 1, .max_tokens = 5}), tokens)));
  EXPECT_TRUE(at::equal(outputs[0], outputs[1]));
}

TEST(Decoder, SeesWeightsThatChangedAfterItWasMade) {
  const at::NoGradGuard no_grad;
  for (const auto* method : {"linear", "stateful-sdpa", "softmax"}) {
    auto model = model_of(small_model(method));
    const auto decoder = make_decoder(model, {.batch = 3, .max_tokens = 13});
    const auto tokens = random_tokens(model, 3, 13);
    const auto before = decoded(*decoder, tokens);
    for (const auto& parameter : model->parameters()) parameter.add_(at::randn(parameter.sizes()) * 0.1);
    decoder->reset();
    const auto changed = decoded(*decoder, tokens);
    expect_close(changed, model(tokens), "weights changed in place");
    EXPECT_FALSE(at::allclose(changed, before, 0.01, 0.01));
    for (auto& parameter : model->parameters()) parameter.set_data(parameter + at::randn(parameter.sizes()) * 0.1);
    decoder->reset();
    expect_close(decoded(*decoder, tokens), model(tokens), "weights in other memory");
  }
}

// ---------------------------------------------------------------- CUDA graphs

// In place of a GPU: what a function "launches" is the function itself.
struct FakeGraphs {
  int recorded = 0, replayed = 0;
  DecoderOptions options(int64_t batch, int64_t max_tokens) {
    DecoderOptions options{.batch = batch, .max_tokens = max_tokens};
    options.capture = [this](const std::function<void()>& work) {
      ++recorded;
      return [this, work] { ++replayed, work(); };
    };
    return options;
  }
};

TEST(DecoderGraph, GivesTheOutputsOfTheModel) {
  const at::NoGradGuard no_grad;
  auto model = model_of(small_model("linear"));
  const auto tokens = random_tokens(model, 3, 13);
  FakeGraphs graphs;
  const auto decoder = make_decoder(model, graphs.options(3, 13));
  expect_close(decoded(*decoder, tokens), model(tokens), "steps");
  EXPECT_EQ(graphs.recorded, 1);   // the first token initialises, the second is recorded
  EXPECT_EQ(graphs.replayed, 12);  // one graph for each token
  EXPECT_EQ(decoder->implementation().find("graph of modules + kernel/"), 0U) << decoder->implementation();
  decoder->reset();
  expect_close(decoded(*decoder, tokens, 9), model(tokens).narrow(1, 8, 5), "steps after a reset and a prefill");
  EXPECT_EQ(graphs.recorded, 2);
  EXPECT_EQ(graphs.replayed, 16);
}

TEST(DecoderGraph, IsRecordedAgainWhereWeightsHaveMoved) {
  const at::NoGradGuard no_grad;
  auto model = model_of(small_model("linear"));
  const auto tokens = random_tokens(model, 3, 4);
  FakeGraphs graphs;
  const auto decoder = make_decoder(model, graphs.options(3, 4));
  decoded(*decoder, tokens.narrow(1, 0, 3));
  for (const auto& parameter : model->parameters()) parameter.add_(0.1);  // in place, which a graph sees
  decoder->step(tokens.select(1, 3));
  EXPECT_EQ(graphs.recorded, 1);
  decoder->reset();
  decoded(*decoder, tokens.narrow(1, 0, 3));
  EXPECT_EQ(graphs.recorded, 2);
  for (auto& parameter : model->parameters()) parameter.set_data(parameter + 0.1);
  decoder->step(tokens.select(1, 3));
  EXPECT_EQ(graphs.recorded, 3);
}

TEST(DecoderGraph, IsNotMadeForMethodsWhoseWorkGrowsWithThePosition) {
  const at::NoGradGuard no_grad;
  for (const auto* method : {"stateful-softmax", "stateful-sdpa", "softmax", "favor:implementation=composed"}) {
    auto model = model_of(small_model(method));
    const auto tokens = random_tokens(model, 3, 5);
    FakeGraphs graphs;
    const auto decoder = make_decoder(model, graphs.options(3, 5));
    expect_close(decoded(*decoder, tokens), model(tokens), method);
    EXPECT_EQ(graphs.recorded, 0) << method;
    EXPECT_EQ(decoder->implementation().find("graph"), std::string::npos) << decoder->implementation();
  }
}

TEST(Decoder, TakesTokensWithAStride) {
  const auto model = model_of(small_model("linear"));
  const auto tokens = random_tokens(model, 3, 4);
  const auto a = make_decoder(model, {.batch = 3, .max_tokens = 4}), b = make_decoder(model, {.batch = 3, .max_tokens = 4});
  for (int64_t i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(a->step(tokens.select(1, i)), b->step(tokens.select(1, i).contiguous())));
}

TEST(Decoder, NamesWhatItRan) {
  const auto implementation = [](const std::string& method, const std::string& kernel, bool prefill) {
    const auto model = model_of(small_model(method));
    const auto decoder = make_decoder(model, {.batch = 3, .max_tokens = 4, .kernel = kernel});
    const auto tokens = random_tokens(model, 3, 2);
    prefill ? decoder->prefill(tokens) : decoder->step(tokens.select(1, 0));
    return decoder->implementation();
  };
  const auto best = std::string(attn::cpu::name_of(attn::cpu::available_instruction_sets().back()));
  EXPECT_EQ(implementation("linear", "auto", false), "decoder/" + best + " + kernel/" + best);
  EXPECT_EQ(implementation("linear:implementation=portable", "portable", false), "decoder/portable + kernel/portable");
  EXPECT_EQ(implementation("linear", "auto", true), "modules + kernel/" + best);
  EXPECT_EQ(implementation("linear", "modules", false), "modules + kernel/" + best);
  EXPECT_EQ(implementation("stateful-softmax", "auto", false), "decoder/" + best + " + kernel/" + best);
  EXPECT_EQ(implementation("stateful-softmax", "modules", false), "modules + aten/preallocated-cache");
  EXPECT_EQ(implementation("stateful-sdpa", "auto", false), "decoder/" + best + " + sdpa/flash_attention");
  EXPECT_EQ(implementation("softmax", "auto", false), "forward + aten/materialised");
}

TEST(Decoder, CountsTheBytesOfItsState) {
  const auto bytes = [](const std::string& method) {
    return make_decoder(model_of(small_model(method)), {.batch = 3, .max_tokens = 10})->state_bytes();
  };
  constexpr int64_t kHeads = 2 * 3 * 3;  // layers · batch · heads
  EXPECT_EQ(bytes("linear"), kHeads * (12 * 12 + 12) * 4);
  EXPECT_EQ(bytes("stateful-softmax"), kHeads * 10 * (12 + 12) * 4);
  EXPECT_EQ(bytes("stateful-sdpa"), kHeads * 10 * (12 + 12) * 4);
  EXPECT_EQ(bytes("softmax"), 3 * 10 * 8) << "the tokens";
}

// ---------------------------------------------------------------- memory

// The largest number of bytes that LibTorch allocated at once in the step that follows two others, and the calls of operator new.
std::pair<int64_t, int64_t> allocations_of_a_step(const std::string& method, int64_t batch, const std::string& kernel) {
  const auto model = model_of(small_model(method));
  const auto decoder = make_decoder(model, {.batch = batch, .max_tokens = 9, .kernel = kernel});
  const auto tokens = random_tokens(model, batch, 1).select(1, 0).contiguous();
  for (int i = 0; i < 2; ++i) decoder->step(tokens);
  const attnbench::AllocationCounter counter;
#ifndef __SANITIZE_ADDRESS__
  const auto before = news.load();
  decoder->step(tokens);
  return {counter.peak_bytes(), news.load() - before};
#else
  decoder->step(tokens);
  return {counter.peak_bytes(), 0};
#endif
}

TEST(Decoder, AStepAllocatesNothing) {
  for (const auto* method : {"linear", "stateful-softmax"})
    for (const int64_t batch : {1, 64})
      for (const auto set : attn::cpu::available_instruction_sets()) {
        const auto [bytes, calls] = allocations_of_a_step(method, batch, attn::cpu::name_of(set));
        EXPECT_EQ(bytes, 0) << method << " " << batch << " " << attn::cpu::name_of(set);
        EXPECT_EQ(calls, 0) << method << " " << batch << " " << attn::cpu::name_of(set);
      }
  const auto [bytes, calls] = allocations_of_a_step("linear", 1, "modules");
  EXPECT_GT(bytes, 0) << "allocations are counted";
#ifndef __SANITIZE_ADDRESS__
  EXPECT_GT(calls, 0) << "calls of operator new are counted";
#endif
}

// PyTorch's operator has no form that writes to a given tensor. The decoder adds nothing to what the operator allocates.
TEST(Decoder, AStepOfStatefulSdpaAllocatesOnlyWhatItsOperatorReturns) {
  const auto [bytes, calls] = allocations_of_a_step("stateful-sdpa", 3, "auto");
  const auto q = at::randn({3, 3, 1, 12}), k = at::randn({3, 3, 3, 12});
  const attnbench::AllocationCounter counter;
  const auto output = at::scaled_dot_product_attention(q, k, k);
  EXPECT_GT(bytes, 0);
  EXPECT_LE(bytes, counter.peak_bytes());
}

// ---------------------------------------------------------------- kernels

// Computes a linear layer with activations by rows or by columns, in parts of the outputs, and compares it with PyTorch's.
void expect_linear_layer(attn::cpu::InstructionSet set, bool by_columns, int64_t batch, int64_t depth, int64_t outputs) {
  SCOPED_TRACE(testing::Message() << attn::cpu::name_of(set) << (by_columns ? " by columns " : " by rows ") << batch << " "
                                  << depth << " " << outputs);
  // Activations with `more` numbers between rows, or between columns.
  const auto shape = [&](int64_t width, int64_t more) {
    return by_columns ? std::vector<int64_t>{width, batch + more} : std::vector<int64_t>{batch, width + more};
  };
  const auto x = at::randn(shape(depth, 3)), weight = at::randn({outputs, depth}), bias = at::randn({outputs});
  const auto residual = at::randn(shape(outputs, 5)), y = at::full(shape(outputs, 2), 7.0f);
  // The activations as a tensor [batch, width], which shares their memory.
  const auto by_rows = [&](const at::Tensor& stored, int64_t width) {
    return (by_columns ? stored.t() : stored).slice(0, 0, batch).slice(1, 0, width);
  };
  LinearLayerParams params{.x = x.const_data_ptr<float>(),
                           .weight = weight.const_data_ptr<float>(),
                           .bias = bias.const_data_ptr<float>(),
                           .residual = residual.const_data_ptr<float>(),
                           .y = y.mutable_data_ptr<float>(),
                           .batch = batch,
                           .depth = depth,
                           .x_stride = x.size(1),
                           .y_stride = y.size(1),
                           .residual_stride = residual.size(1),
                           .relu = true};
  const auto linear = by_columns ? decoder_kernels(set).linear_columns : decoder_kernels(set).linear;
  const auto result = by_rows(y, outputs), added = by_rows(residual, outputs);
  const auto expect_result = [&](const at::Tensor& expected, const char* what) {
    const auto tolerance = 1e-5 * std::sqrt(double(depth)) + 1e-6;
    EXPECT_TRUE(at::allclose(result.to(at::kDouble), expected, 0, tolerance)) << what;
  };
  const auto product = at::linear(by_rows(x, depth).to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble));

  const auto middle = outputs / 2;
  linear(params, middle, outputs);
  EXPECT_TRUE(result.narrow(1, 0, middle).eq(7).all().item<bool>()) << "outputs outside the range are not written";
  linear(params, 0, middle);
  expect_result(at::relu(product + added), "with a residual and relu");
  EXPECT_TRUE(y.slice(1, y.size(1) - 2).eq(7).all().item<bool>()) << "what lies between rows or columns is not written";
  params.relu = false;
  params.residual = nullptr;
  linear(params, 0, outputs);
  expect_result(product, "alone");
  result.copy_(added);
  params.residual = y.const_data_ptr<float>();
  params.residual_stride = params.y_stride;
  linear(params, 0, outputs);
  expect_result(product + added, "the result may be stored where the residual was");
}

TEST(DecoderKernels, ComputeALinearLayerForAnyRange) {
  for (const auto set : attn::cpu::available_instruction_sets()) {
    for (const int64_t batch : {1, 2, 5, 6, 13, 64})
      for (const int64_t depth : {1, 8, 16, 44, 256, 1000})
        for (const int64_t outputs : {1, 3, 4, 30}) expect_linear_layer(set, /*by_columns=*/false, batch, depth, outputs);
    for (const int64_t batch : {16, 32, 48, 64, 80})
      for (const int64_t depth : {1, 44, 64, 200})
        for (const int64_t outputs : {1, 3, 6, 23}) expect_linear_layer(set, /*by_columns=*/true, batch, depth, outputs);
  }
}

TEST(DecoderKernels, KeepNaNWhereNegativeNumbersBecomeZero) {
  for (const auto set : attn::cpu::available_instruction_sets())
    for (const bool by_columns : {false, true}) {
      const auto x = at::tensor({-1.0f, NAN, 2.0f, 3.0f}).repeat({4}), y = at::zeros({16}), ones = at::ones({1}),
                 zeros = at::zeros({1});
      const auto stride = by_columns ? 16 : 1;
      const LinearLayerParams params{.x = x.const_data_ptr<float>(),
                                     .weight = ones.const_data_ptr<float>(),
                                     .bias = zeros.const_data_ptr<float>(),
                                     .y = y.mutable_data_ptr<float>(),
                                     .batch = 16,
                                     .depth = 1,
                                     .x_stride = stride,
                                     .y_stride = stride,
                                     .relu = true};
      const auto& kernels = decoder_kernels(set);
      (by_columns ? kernels.linear_columns : kernels.linear)(params, 0, 1);
      EXPECT_TRUE(at::allclose(y, at::relu(x), 0, 0, /*equal_nan=*/true)) << attn::cpu::name_of(set) << " " << by_columns;
    }
}

TEST(DecoderKernels, NormaliseSequences) {
  for (const auto set : attn::cpu::available_instruction_sets())
    for (const bool by_columns : {false, true})
      for (const int64_t width : {1, 7, 16, 44, 256}) {
        SCOPED_TRACE(testing::Message() << attn::cpu::name_of(set) << " " << width << (by_columns ? " by columns" : " by rows"));
        constexpr int64_t kBatch = 48, kFirst = 16, kLast = 32;
        const auto x = at::randn({kBatch, width}) * 3 + 50, weight = at::randn({width}), bias = at::randn({width});
        const auto stored = by_columns ? x.t().contiguous() : x, y = at::full_like(stored, 7.0f);
        const auto& kernels = decoder_kernels(set);
        (by_columns ? kernels.layer_norm_columns : kernels.layer_norm)({.x = stored.const_data_ptr<float>(),
                                                                        .y = y.mutable_data_ptr<float>(),
                                                                        .width = width,
                                                                        .stride = by_columns ? kBatch : width,
                                                                        .weight = weight.const_data_ptr<float>(),
                                                                        .bias = bias.const_data_ptr<float>(),
                                                                        .epsilon = 1e-3f},
                                                                       kFirst, kLast);
        const auto expected =
            at::layer_norm(x.to(at::kDouble), {width}, weight.to(at::kDouble), bias.to(at::kDouble), double(1e-3f));
        const auto result = by_columns ? y.t() : y;
        EXPECT_TRUE(at::allclose(result.slice(0, kFirst, kLast).to(at::kDouble), expected.slice(0, kFirst, kLast), 1e-4, 1e-4));
        EXPECT_TRUE(result.slice(0, 0, kFirst).eq(7).all().item<bool>()) << "sequences before the range are not written";
        EXPECT_TRUE(result.slice(0, kLast, kBatch).eq(7).all().item<bool>()) << "sequences after the range are not written";
      }
}

TEST(DecoderKernels, Transpose) {
  for (const auto set : attn::cpu::available_instruction_sets())
    for (const int64_t rows : {1, 15, 16, 40})
      for (const int64_t columns : {1, 12, 16, 53}) {
        const auto from = at::randn({rows, columns + 1}), to = at::full({columns, rows + 2}, 7.0f);
        decoder_kernels(set).transpose(from.const_data_ptr<float>(), columns + 1, rows, columns, to.mutable_data_ptr<float>(),
                                       rows + 2);
        SCOPED_TRACE(testing::Message() << attn::cpu::name_of(set) << " " << rows << " " << columns);
        EXPECT_TRUE(at::equal(to.narrow(1, 0, rows), from.narrow(1, 0, columns).t()));
        EXPECT_TRUE(to.narrow(1, rows, 2).eq(7).all().item<bool>()) << "columns beyond the rows are not written";
      }
}

// ---------------------------------------------------------------- mistakes

TEST(Decoder, RefusesMistakes) {
  auto model = model_of(small_model("linear"));
  const auto refusal = [](const std::function<void()>& mistake) { return message_of<c10::ValueError>(mistake); };
  const auto make = [&](DecoderOptions options) { return refusal([&] { make_decoder(model, options); }); };
  EXPECT_CONTAINS(make({.batch = 0, .max_tokens = 3}), "decoder: batch = 0, expected at least 1");
  EXPECT_CONTAINS(make({.batch = 1}), "decoder: max_tokens = 0, expected at least 1");
  EXPECT_CONTAINS(make({.batch = 1, .max_tokens = 3, .kernel = "sse"}), "kernel 'sse' is not available here");
  for (const auto* kernel : {"modules", "auto"}) {
    const auto decoder = make_decoder(model, {.batch = 2, .max_tokens = 3, .kernel = kernel});
    const auto step = [&](const at::Tensor& tokens) { return refusal([&] { decoder->step(tokens); }); };
    const auto tokens = at::zeros({2}, at::kLong);
    EXPECT_CONTAINS(step(at::zeros({3}, at::kLong)), "tokens are Long [3], expected int64 [2]");
    EXPECT_CONTAINS(step(at::zeros({2, 1}, at::kLong)), "tokens are Long [2, 1], expected int64 [2]");
    EXPECT_CONTAINS(step(at::zeros({2})), "tokens are Float [2]");
    EXPECT_CONTAINS(step(at::tensor({0, 11}, at::kLong)), "token 11 of sequence 1, expected tokens from 0 to 10");
    EXPECT_CONTAINS(step(at::tensor({-1, 0}, at::kLong)), "token -1 of sequence 0");
    EXPECT_CONTAINS(refusal([&] { decoder->prefill(at::zeros({2, 4}, at::kLong)); }), "0 of 3 tokens, 4 more do not fit");
    EXPECT_CONTAINS(refusal([&] { decoder->prefill(at::zeros({2, 0}, at::kLong)); }), "with length ≥ 1");
    EXPECT_CONTAINS(refusal([&] { decoder->prefill(tokens); }), "shape [2], expected [batch, length]");
    EXPECT_CONTAINS(refusal([&] { decoder->prefill(at::full({2, 2}, 11, at::kLong)); }), "expected tokens from 0 to 10");
    EXPECT_EQ(decoder->position(), 0);
    decoder->step(tokens);
    EXPECT_CONTAINS(refusal([&] { decoder->prefill(at::zeros({2, 1}, at::kLong)); }), "these have 1 tokens");
    model->train();
    EXPECT_CONTAINS(step(tokens), "the model is in training mode");
    EXPECT_CONTAINS(make({.batch = 2, .max_tokens = 3}), "the model is in training mode");
    model->eval();
    decoder->step(tokens), decoder->step(tokens);
    EXPECT_CONTAINS(step(tokens), "the sequences have 3 of 3 tokens, 1 more do not fit");
    decoder->reset();
    decoder->step(tokens);
  }
}

TEST(Decoder, RefusesAModelThatChangedItsType) {
  auto model = model_of(small_model("linear"));
  const auto decoder = make_decoder(model, {.batch = 2, .max_tokens = 3});
  model->to(at::kDouble);
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { decoder->step(at::zeros({2}, at::kLong)); }),
                  "the model was Float on cpu when the decoder was made and is Double on cpu now");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { make_decoder(model, {.batch = 2, .max_tokens = 3, .kernel = "portable"}); }),
                  "kernel 'portable' computes float32 on the CPU, but the model is Double on cpu");
}

}  // namespace
}  // namespace experiments
