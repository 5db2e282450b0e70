// Tests of how operators and methods find their implementation: which answers for a device, which requests are refused, and that
// a method searches once per problem.
#include "attn/implementations.h"

#include <gtest/gtest.h>

#include "tests/support/errors_of.h"

namespace attn {
namespace {

using attnbench::message_of;

struct Fake {
  std::string name;
};
using Registry = ImplementationRegistry<Fake, ImplementationRequest>;

int searches = 0;

const Fake kFast{"fast"}, kPlain{"plain"}, kCuda{"cuda"};

// fast computes float32, plain float32 and float64, and rounded is chosen by its name alone.
Registry registry_with_cpu() {
  Registry registry("fake_attention");
  const auto always = [](const Fake& fake) { return [&](const ImplementationRequest&) { return &fake; }; };
  registry.register_cpu(
      {{.name = "fast",
        .why_not =
            [](const ImplementationRequest& request) {
              ++searches;
              return request.dtype == at::kFloat ? "" : std::string("does not compute in ") + c10::toString(request.dtype);
            },
        .get = always(kFast)},
       {.name = "rounded",
        .why_not = [](const ImplementationRequest& r) { return std::string(r.dtype == at::kHalf ? "does not compute it" : ""); },
        .get = always(kFast),
        .only_by_name = true,
        .in_tf32 = true},
       {.name = "plain",
        .why_not = [](const ImplementationRequest& r) { return std::string(r.dtype == at::kHalf ? "does not compute it" : ""); },
        .get = always(kPlain)}});
  return registry;
}

void register_cuda(Registry& registry) {
  registry.register_gpu(at::kCUDA, {{.name = "cuda",
                                     .why_not = [](const ImplementationRequest&) { return std::string(); },
                                     .get = [](const ImplementationRequest&) { return &kCuda; }}});
}

ImplementationRequest request(const std::string& wanted, c10::DeviceType device = at::kCPU, at::ScalarType dtype = at::kFloat) {
  return {wanted, dtype, device, 64, 64};
}

TEST(Implementations, ComposedFindsNoImplementation) {
  const auto registry = registry_with_cpu();
  EXPECT_EQ(registry.find(request("composed")), nullptr);
  EXPECT_EQ(registry.find(request("composed", at::kCUDA)), nullptr);
}

TEST(Implementations, AutoTakesTheFirstThatComputesTheRequest) {
  const auto registry = registry_with_cpu();
  EXPECT_EQ(registry.find(request("auto")), &kFast);
  EXPECT_EQ(registry.find(request("auto", at::kCPU, at::kDouble)), &kPlain);  // rounded is passed over
  EXPECT_EQ(registry.find(request("auto", at::kCPU, at::kHalf)), nullptr);
  EXPECT_EQ(registry.find(request("rounded", at::kCPU, at::kDouble)), &kFast);
}

TEST(Implementations, ANamedOneRunsOrSaysWhyNot) {
  const auto registry = registry_with_cpu();
  const auto error = [&](const ImplementationRequest& r) { return message_of<c10::ValueError>([&] { registry.find(r); }); };
  EXPECT_EQ(registry.find(request("plain")), &kPlain);
  EXPECT_CONTAINS(error(request("fast", at::kCPU, at::kDouble)),
                  "fake_attention: implementation 'fast' does not compute in Double; use 'rounded', 'plain' or 'composed'");
  EXPECT_CONTAINS(error(request("plain", at::kCPU, at::kHalf)), "'plain' does not compute it; use 'composed'");
  EXPECT_CONTAINS(error(request("other")),
                  "fake_attention: there is no implementation 'other' for cpu, expected auto, fast, "
                  "rounded, plain or composed");
}

TEST(Implementations, GpuKernelsNeedTheirLibrary) {
  auto registry = registry_with_cpu();
  EXPECT_EQ(registry.find(request("auto", at::kCUDA)), nullptr);
  for (const auto* name : {"cuda", "fast"})
    EXPECT_CONTAINS(
        message_of<c10::ValueError>([&] { registry.find(request(name, at::kCUDA)); }),
        std::string("fake_attention: there is no implementation '") + name +
            "' for cuda, expected auto or composed; the kernels for CUDA are in libattn-cuda.so, which is not loaded");
  register_cuda(registry);
  EXPECT_EQ(registry.find(request("cuda", at::kCUDA)), &kCuda);
  EXPECT_EQ(registry.find(request("auto")), &kFast);  // the answer for the CPU is not changed
  EXPECT_EQ(registry.choose(request("fast", at::kCUDA)).error,
            "fake_attention: there is no implementation 'fast' for cuda, expected auto, cuda or composed");
  EXPECT_CONTAINS(message_of<c10::Error>([&] { register_cuda(registry); }), "fake_attention: GPU kernels are registered twice");
  EXPECT_CONTAINS(message_of<c10::Error>([&] { registry.register_cpu({}); }), "fake_attention: CPU kernels are registered twice");
}

TEST(Implementations, AMethodSearchesOncePerProblem) {
  const auto registry = registry_with_cpu();
  const ImplementationResolver<Registry> resolver(registry);
  searches = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(resolver.why_unsupported("fake", request("auto")));
    EXPECT_EQ(resolver.find(request("auto")), &kFast);
  }
  EXPECT_EQ(searches, 1);
  EXPECT_EQ(resolver.find(request("auto", at::kCPU, at::kHalf)), nullptr);
  EXPECT_EQ(searches, 2);
  auto wider = request("auto");
  wider.value_dim = 65;
  EXPECT_EQ(resolver.find(wider), &kFast);
  EXPECT_EQ(searches, 3);
  wider.gradients = false;  // another implementation may be chosen for the forward pass alone, and on another GPU
  EXPECT_EQ(resolver.find(wider), &kFast);
  EXPECT_EQ(searches, 4);
  wider.device_index = 1;
  EXPECT_EQ(resolver.find(wider), &kFast);
  EXPECT_EQ(searches, 5);
}

TEST(Implementations, RefusalsNameTheMethodAndTheReason) {
  const auto registry = registry_with_cpu();
  const ImplementationResolver<Registry> resolver(registry);
  EXPECT_EQ(
      resolver.why_unsupported("fake:implementation=fast", request("fast", at::kCPU, at::kDouble)),
      "fake:implementation=fast: fake_attention: implementation 'fast' does not compute in Double; use 'rounded', 'plain' or "
      "'composed'");
  EXPECT_CONTAINS(message_of<c10::ValueError>([&] { resolver.find(request("fast", at::kCPU, at::kDouble)); }),
                  "implementation 'fast' does not compute in Double");
  EXPECT_FALSE(resolver.why_unsupported("fake", request("composed", at::kCUDA)));
}

TEST(Implementations, SayInWhichPrecisionTheyCompute) {
  const auto registry = registry_with_cpu();
  const ImplementationResolver<Registry> resolver(registry);
  EXPECT_EQ(resolver.precision("rounded", at::kFloat), at::kHalf);
  EXPECT_EQ(resolver.precision("rounded", at::kDouble), at::kDouble);
  for (const auto* name : {"fast", "auto", "composed", "other"}) EXPECT_EQ(resolver.precision(name, at::kFloat), at::kFloat);
}

TEST(Implementations, TheOptionHasTheNamesAndAutoAndComposed) {
  const auto option = implementation_option({"fast", "plain"});
  EXPECT_EQ(option.name, "implementation");
  EXPECT_EQ(option.choices, (std::vector<std::string>{"auto", "fast", "plain", "composed"}));
  EXPECT_EQ(std::get<std::string>(option.default_value), "auto");
}

TEST(Implementations, Float16RunsOnCudaAndWhereGpuKernelsAreRegistered) {
  auto registry = registry_with_cpu();
  const ImplementationResolver<Registry> resolver(registry);
  EXPECT_TRUE(resolver.takes_float16(at::kCUDA));
  EXPECT_FALSE(resolver.takes_float16(at::kCPU));
  registry.register_gpu(at::kCPU, {});
  EXPECT_TRUE(resolver.takes_float16(at::kCPU));
}

}  // namespace
}  // namespace attn
